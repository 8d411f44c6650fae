"""Run the tests of HumanEval and MBPP: assertions that run after the answer's code.

Tests and code run in the same process, which prints a random number if the tests pass.
So code that exits early does not pass. Code that searches its own process could still
find the number. The tests of HumanEval+ and MBPP+ do not have this weakness.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentgym.core.task import Split
from agentgym.errors import UsageError
from agentgym.plugins.bench.code.problems import (
    BenchmarkProblem,
    Judge,
    field,
    read_lines,
    texts,
)
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


@dataclass(frozen=True)
class Asserts(Judge):
    """Accepts code if the tests, Python code that runs after it, raise no exception."""

    tests: str

    def accepts(self, sandbox: Sandbox, code: str) -> bool:
        """Return whether the tests pass within 3 seconds."""
        number = secrets.token_hex(16)
        script = _SCRIPT % (code, self.tests, number)
        result = sandbox.run_sync(
            {"judge.py": script}, PythonScript("judge.py"), timeout_s=_TIMEOUT_S
        )
        return result.checked().ok and result.stdout == number


def read_humaneval(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of HumanEval."""
    source = HUMANEVAL_SOURCE
    for row in read_lines(data, "HumanEval", source):
        prompt, name, tests = (
            field(row, key, str, source) for key in ("prompt", "entry_point", "test")
        )
        yield BenchmarkProblem(
            id=field(row, "task_id", str, source),
            family="humaneval",
            instruction=COMPLETE.format(prompt=prompt),
            prefix=prompt,
            is_python=True,
            entry_point=name,
            judge=Asserts(f"{tests}\ncheck({name})\n"),
        )


def read_mbpp(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of MBPP from its full or its sanitized data file."""
    source = MBPP_SOURCE
    for row in read_lines(data, "MBPP", source):
        number = field(row, "task_id", int, source)
        tests = texts(row, "test_list", source)
        request = row.get("text", row.get("prompt"))
        if not isinstance(request, str) or not tests:
            raise UsageError(
                f"{row['']} is not of MBPP: it needs `text` or `prompt`, and tests. "
                f"The data come from {source}."
            )
        before = _before(row, source)
        yield BenchmarkProblem(
            id=f"Mbpp/{number}",
            family="mbpp",
            instruction=WRITE.format(request=request, tests="\n".join(tests)),
            judge=Asserts("\n".join([*before, *tests])),
            split=_split(number),
        )


def _before(row: dict[str, Any], source: str) -> list[str]:
    if "test_imports" in row:
        return texts(row, "test_imports", source)
    return [str(row.get("test_setup_code", ""))]


def _split(number: int) -> Split:
    """Return the split of an MBPP problem; few-shot examples are for training."""
    if 11 <= number <= 510:
        return Split.TEST
    return Split.VALIDATION if 511 <= number <= 600 else Split.TRAIN
