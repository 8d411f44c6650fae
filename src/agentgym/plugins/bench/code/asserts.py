"""Run the tests of HumanEval and MBPP: assertions that run after the answer's code.

Tests and code run in the same process, which prints a random number if the tests pass.
So code that exits early does not pass. Code that searches its own process could still
find the number. The tests of HumanEval+ and MBPP+ do not have this weakness.
"""

import secrets
from collections.abc import Iterator
from functools import partial

from agentgym.core.task import Split
from agentgym.plugins.bench.code.problems import BenchmarkProblem, read_lines
from agentgym.sandbox import PythonScript, Sandbox

HUMANEVAL_SOURCE = (
    "https://github.com/openai/human-eval (data/HumanEval.jsonl.gz), or the data set "
    "openai/openai_humaneval on Hugging Face as JSON Lines"
)
MBPP_SOURCE = (
    "https://github.com/google-research/google-research/tree/master/mbpp (mbpp.jsonl "
    "or sanitized-mbpp.json)"
)
COMPLETE = (
    "Complete this Python function. Answer with the whole function in one code block.\n"
    "\n```python\n{prompt}```"
)
WRITE = (
    "{request} Your code should pass these tests:\n\n{tests}\n\nAnswer with the whole "
    "code in one Python code block."
)
_TIMEOUT_S = 3.0
_SCRIPT = """
import os as _os
_out = _os.dup(1)
_os.dup2(2, 1)
_os.remove(__file__)
_names = {"__name__": "solution"}
exec(compile(%r, "solution.py", "exec"), _names)
exec(compile(%r, "tests.py", "exec"), _names)
_os.write(_out, b"%s")
"""


def passes(sandbox: Sandbox, code: str, *, tests: str) -> bool:
    """Return whether tests that run after the code pass within 3 seconds."""
    number = secrets.token_hex(16)
    script = _SCRIPT % (code, tests, number)
    result = sandbox.run_sync(
        {"judge.py": script}, PythonScript("judge.py"), timeout_s=_TIMEOUT_S
    )
    return result.checked().ok and result.stdout == number


def read_humaneval(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of HumanEval."""
    for row in read_lines(data, "HumanEval", HUMANEVAL_SOURCE):
        prompt, name = row.field("prompt"), row.field("entry_point")
        tests = f"{row.field('test')}\ncheck({name})\n"
        yield BenchmarkProblem(
            id=row.field("task_id"),
            family="humaneval",
            instruction=COMPLETE.format(prompt=prompt),
            prefix=prompt,
            is_python=True,
            entry_point=name,
            judge=partial(passes, tests=tests),
        )


def read_mbpp(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of MBPP from its full or its sanitized data file."""
    for row in read_lines(data, "MBPP", MBPP_SOURCE):
        number, tests = row.field("task_id", int), row.texts("test_list")
        request = row.get("text", row.get("prompt"))
        if not isinstance(request, str) or not tests:
            raise row.error("it needs `text` or `prompt`, and tests")
        before = [str(row.get("test_setup_code", ""))]
        if row.get("test_imports") is not None:
            before = row.texts("test_imports")
        yield BenchmarkProblem(
            id=f"Mbpp/{number}",
            family="mbpp",
            instruction=WRITE.format(request=request, tests="\n".join(tests)),
            judge=partial(passes, tests="\n".join([*before, *tests])),
            split=_split(number),
        )


def _split(number: int) -> Split:
    """Return the split of an MBPP problem; few-shot examples are for training."""
    if 11 <= number <= 510:
        return Split.TEST
    return Split.VALIDATION if 511 <= number <= 600 else Split.TRAIN
