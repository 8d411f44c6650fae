"""Published code benchmarks as scenarios, read from their own data files.

- ``problems``: :class:`BenchmarkProblem`; reads data files, finds code in answers.
- ``asserts``: HumanEval and MBPP, whose tests are assertions.
- ``outputs``: HumanEval+ and MBPP+, whose outputs are compared outside the sandbox.
- ``programs``: MultiPL-E, whose tests are part of the program.
- ``contests``: LiveCodeBench, with tests by standard input or function call.
- ``scenario``: the scenarios.
"""
