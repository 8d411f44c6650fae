"""Published code benchmarks as scenarios, read from the benchmarks' data files.

- ``scenario``: the scenarios.
- ``problems``: one problem of a benchmark; reads data files, finds code in answers.
- ``asserts``: HumanEval and MBPP, whose tests are assertions.
- ``outputs``: HumanEval+ and MBPP+, whose outputs are compared outside the sandbox.
- ``programs``: MultiPL-E, whose tests are part of the program.
- ``contests``: LiveCodeBench, whose tests are inputs and outputs.
"""
