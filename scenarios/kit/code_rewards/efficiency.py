"""A part of a reward for code that needs little CPU time and memory."""

import ast
import inspect
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from agentgym.errors import ScenarioError
from agentgym.packs.kit.code_rewards.parts import RewardPart, SubmittedCode
from agentgym.sandbox import PythonScript, Sandbox
from agentgym.sandbox.guest import plain

STEPS = (1.5, 3.0, 6.0, 12.0)
"""Multiples of the reference solution's cost. From each multiple on, the code earns a
smaller share of the reward: 0.75, 0.5, 0.25 and 0."""

_ROUNDS = 3
_MORE_ROUNDS = 6
_DOUBT = 0.2
"""A ratio that differs from one of ``STEPS`` by less than 20 % is measured again."""
_SCRIPT = """
import importlib as _importlib, os as _os, sys as _sys


def _write_all(asked):
    out = _os.dup(1)
    _os.dup2(2, 1)  # The program's own prints are not values.
    if _os.path.isdir("src"):
        _sys.path.insert(0, _os.path.abspath("src"))
    for module, expression in asked:
        names = dict(vars(_importlib.import_module(module)))
        _os.write(out, (plain_text(eval(expression, names)) + "\\n").encode())
"""


@dataclass(frozen=True)
class ProgramCost:
    """CPU time and memory of a program that evaluates expressions.

    Attributes:
        values: The values of the expressions as text; empty if the program failed.
        cpu_s: CPU time of all its processes in seconds, including the start of Python.
        peak_mb: Highest memory use of one process in MiB, including Python's own.
    """

    values: str
    cpu_s: float
    peak_mb: float


class Efficiency(RewardPart[SubmittedCode]):
    """CPU time and memory of a workload, relative to a reference solution.

    The sandbox measures both from outside of the program. The reference solution and
    the agent's code run alternately, several times each, in new processes. The lowest
    measurement of each counts, since a busy machine only increases the others.

    The earned share depends on the ratio of the agent's cost to the reference's cost:
    1 up to a ratio of 1.5, 0.75 up to 3, 0.5 up to 6, 0.25 up to 12, and 0 above. So
    better algorithms earn more, and differences of a few percent do not count. A ratio
    close to one of these limits is measured again.

    If a value differs from the reference's value, the share is 0.

    Args:
        workload: Expressions that take time, by the path of the module, as in
            ``{"shop.py": ["total(range(10**6))"]}``. The reference solution should need
            at least 0.1 s for them, several times as long as the start of Python. Each
            expression is evaluated once per process, so cached results do not help.
        reference: Text of the reference solution's files, by path.
        timeout_s: Time limit of each run, in seconds.

    Raises:
        ScenarioError: The workload is empty, or an expression does not parse.
    """

    name: ClassVar[str] = "efficiency"

    def __init__(
        self,
        workload: Mapping[str, Sequence[str]],
        reference: Mapping[str, str],
        *,
        timeout_s: float = 10.0,
    ) -> None:
        self._asked = [
            (_module(path), _parsed(expression))
            for path, expressions in workload.items()
            for expression in expressions
        ]
        if not self._asked:
            raise ScenarioError(
                "Efficiency needs a workload: give expressions that take time, as in "
                '{"shop.py": ["total(range(10**6))"]}.'
            )
        self._reference = dict(reference)
        self._timeout_s = timeout_s

    def share(self, evidence: SubmittedCode) -> float:
        """Return the mean of the shares for CPU time and for memory.

        Raises:
            ScenarioError: The reference solution fails.
            SandboxError: The sandbox failed.
        """
        files, sandbox = evidence.to_run, evidence.sandbox
        ratios: tuple[float, ...] = ()
        for rounds in (_ROUNDS, _MORE_ROUNDS):
            right, given = self.measure(files, sandbox, rounds)
            if given.values != right.values:
                return 0.0
            ratios = _ratios(right, given)
            if all(abs(r / step - 1) >= _DOUBT for r in ratios for step in STEPS):
                break
        return sum(map(share_of_ratio, ratios)) / len(ratios)

    def measure(
        self, files: Mapping[str, str], sandbox: Sandbox, rounds: int
    ) -> tuple[ProgramCost, ProgramCost]:
        """Return the lowest cost of the reference solution and of ``files``.

        Args:
            files: Text of each file of the code to measure, by path.
            sandbox: The sandbox in which both run.
            rounds: How often each runs.

        Raises:
            ScenarioError: The reference solution fails.
            SandboxError: The sandbox failed.
        """
        right, given = [], []
        for number in range(rounds):
            right.append(self._run(sandbox, self._reference, number))
            given.append(self._run(sandbox, files, number))
            if not right[-1].values:
                raise ScenarioError(
                    "The reference solution fails in the workload of the efficiency "
                    "part: see that each expression works in its files."
                )
            if given[-1].values != right[-1].values:
                break
        return _least(right), _least(given)

    def _run(
        self, sandbox: Sandbox, files: Mapping[str, str], number: int
    ) -> ProgramCost:
        call = f"_write_all({self._asked!r})  # {number}\n"
        script = f"{inspect.getsource(plain)}{_SCRIPT}\n\n{call}"
        name = "_workload.py"
        while any(path == name or path.startswith(f"{name}/") for path in files):
            name = f"_{name}"
        result = sandbox.run_sync(
            {**files, name: script}, PythonScript(name), timeout_s=self._timeout_s
        ).checked()
        values = result.stdout if result.ok else ""
        return ProgramCost(values, result.cpu_s, result.peak_mb)


def share_of_ratio(ratio: float) -> float:
    """Return the share that code earns for its CPU time or its memory, from 0 to 1."""
    return 1.0 - bisect_right(STEPS, ratio) / len(STEPS)


def _ratios(right: ProgramCost, given: ProgramCost) -> tuple[float, float]:
    least = 1e-4  # The resolution of the clock.
    return (
        (given.cpu_s + least) / (right.cpu_s + least),
        (given.peak_mb + least) / (right.peak_mb + least),
    )


def _least(found: Sequence[ProgramCost]) -> ProgramCost:
    return ProgramCost(
        found[-1].values,
        min(usage.cpu_s for usage in found),
        min(usage.peak_mb for usage in found),
    )


def _parsed(expression: str) -> str:
    try:
        ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ScenarioError(
            f"{expression!r} in the workload is not an expression: {error}."
        ) from None
    return expression.strip()


def _module(path: str) -> str:
    if not path.endswith(".py"):
        raise ScenarioError(
            f"{path!r} in the workload is not a Python module: efficiency is measured "
            "for Python only."
        )
    plain_path = path.removeprefix("src/").removesuffix(".py")
    return plain_path.removesuffix("/__init__").replace("/", ".")
