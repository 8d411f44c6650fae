"""Code benchmarks: formats, verdicts, and files that are refused."""

import base64
import gzip
import json
import pickle
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentgym import Split
from agentgym.core.trajectory import Trajectory
from agentgym.errors import SandboxError, UsageError
from agentgym.sandbox.languages import missing
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure
from tests.plugins.bench.code import samples
from tests.plugins.bench.code.samples import contest, write
from tests.scenarios.data_sets import CODE_BENCHMARKS


def verdict(scenario: Scenario, answer: str, number: int = 0) -> bool:
    """Judge an answer to a problem, in the order of their ids."""
    tasks = sorted(tasks_to_measure(scenario, "all", 0, 99), key=lambda task: task.id)
    task = tasks[number]
    trajectory = Trajectory(
        rollout_id="r", scenario=scenario.name, task_id=task.id, answer=answer
    )
    environment = scenario.create_environment(task)
    reward = scenario.calculate_reward(task, environment, trajectory)
    assert reward.value == float(reward.success)
    return reward.success


def tell_apart(scenario: Scenario, right: list[str], wrong: list[str]) -> None:
    """Check the verdicts on answers to the first problem, and close the scenario."""
    with closing(scenario):
        for answer in right:
            assert verdict(scenario, answer), answer
        for answer in wrong:
            assert not verdict(scenario, answer), answer


def opened(name: str, path: Path, *rows: Any) -> Scenario:
    return get_scenario(f"{name}?data={write(path, *rows)}")


GOOD = (
    "Here it is:\n\n```python\ndef add_up(numbers: List[float]):\n"
    "    return sum(numbers)\n```\nDone."
)
WRONG = "def add_up(numbers):\n    return 3.0\n"
COMPLETION = (
    "    total = 0\n    for n in numbers:\n        total += n\n    return total\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("humaneval", samples.HUMANEVAL),
        ("humaneval_plus", samples.HUMANEVAL_PLUS),
        ("humaneval_plus", samples.HUMANEVAL_PLUS_ON_HUB),
    ],
)
def test_humaneval(name: str, row: dict[str, Any], tmp_path: Path) -> None:
    scenario = opened(name, tmp_path / "data.jsonl", row)
    wrong = ["", "def (", WRONG, "import os\nos._exit(0)\n", "I cannot."]
    if name == "humaneval":
        wrong.append("def add_up(numbers):\n    while True: pass\n")
    tell_apart(scenario, [GOOD, COMPLETION, samples.ADD + COMPLETION], wrong)


def test_outputs_are_compared_as_evalplus_does(tmp_path: Path) -> None:
    scenario = opened("humaneval_plus", tmp_path / "d.jsonl", samples.HUMANEVAL_PLUS)
    near, far, whole, equal = (
        f"def add_up(numbers):\n    {body}\n"
        for body in (
            "return sum(numbers) + (1e-7 if numbers else 0)",
            "return sum(numbers) + 1e-5",
            "return int(sum(numbers) + 0.5)",
            "class Any(float):\n        __eq__ = lambda *_: True\n    return Any(7)",
        )
    )
    tell_apart(scenario, [near], [far, whole, equal])


@pytest.mark.parametrize("row", [samples.MBPP_PLUS, samples.MBPP_PLUS_ON_HUB])
def test_mbpp_plus_of_both_sources(row: dict[str, Any], tmp_path: Path) -> None:
    scenario = opened("mbpp_plus", tmp_path / "m.jsonl", row)
    with closing(scenario):
        [task] = tasks_to_measure(scenario, "all", 0, 9)
        assert task.id == "Mbpp/2"
        listed = (
            "def similar_elements(first, second):\n"
            "    assert type(first) is tuple\n"
            "    return [x for x in first if x in second]\n"
        )
        assert verdict(scenario, listed)
        assert not verdict(scenario, listed.replace("x in first", "x in first[2:]"))


@pytest.mark.parametrize(
    "program",
    ["(", "inputs = [[1]]", "inputs = [f()]\nfor i in inputs:\n    f(*i)"],
)
def test_a_test_program_of_another_kind_is_refused(
    program: str, tmp_path: Path
) -> None:
    row = {**samples.MBPP_PLUS_ON_HUB, "test": program}
    with pytest.raises(UsageError, match="line 1 .*its field 'test' is not a test"):
        opened("mbpp_plus", tmp_path / "m.jsonl", row)


def test_a_root_is_judged_by_its_polynomial(tmp_path: Path) -> None:
    row = {
        **samples.HUMANEVAL_PLUS,
        "prompt": 'def find_zero(xs):\n    """Return a root."""\n',
        "entry_point": "find_zero",
        "canonical_solution": "    return -xs[0] / xs[1]\n",
        "base_input": [[[2, 1]]],
        "plus_input": [[[0, 4]]],
        "atol": 1e-4,
    }
    scenario = opened("humaneval_plus", tmp_path / "d.jsonl", row)
    near, far = (f"    return -xs[0] / xs[1] + {by}\n" for by in ("1e-6", "1e-2"))
    tell_apart(scenario, [near], [far, "    return None\n"])


def test_mbpp_of_both_files_with_its_splits(tmp_path: Path) -> None:
    path = tmp_path / "mbpp.json"
    path.write_text(json.dumps([samples.MBPP_SANITIZED, samples.MBPP]))
    scenario = get_scenario(f"mbpp?data={path}")
    with closing(scenario):
        assert scenario.splits == (Split.TRAIN, Split.TEST)
        [task] = scenario.tasks(Split.TEST, 0, 9)
        assert task.id == "Mbpp/20"
        assert "assert math.isclose" in task.instruction
        assert verdict(scenario, "```\ndef halve(n):\n    return n / 2\n```")
        assert verdict(scenario, "def count(text): return len(text)", 1)
        assert not verdict(scenario, "def count(text): return 2", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("short", "right", "wrong"),
    [
        ("js", "  return numbers.reduce((a, b) => a + b, 0);\n}\n", "  return 4;\n}\n"),
        (
            "go",
            "\tsum := 0\n\tfor _, n := range numbers { sum += n }\n\treturn sum\n}\n",
            "\treturn 4\n}\n",
        ),
        ("rs", "    numbers.iter().sum()", "    4"),
    ],
)
def test_multipl_e(short: str, right: str, wrong: str, tmp_path: Path) -> None:
    language = {"js": "javascript", "go": "go", "rs": "rust"}[short]
    if reason := missing(language):
        pytest.skip(reason)
    row = samples.MULTIPL_E[short]
    scenario = opened("multipl_e", tmp_path / "data.jsonl", row)
    whole = f"{row['prompt']}{right}\n// "
    tell_apart(scenario, [right, whole], [wrong, "nonsense ("])


PROGRAM = "a, b = map(float, input().split())\nprint(a + b)\n"


def test_livecodebench_by_input_and_by_call(tmp_path: Path) -> None:
    by_call = contest(
        "b",
        "2025-02-01",
        starter_code="class Solution:\n    def more(self, xs, n):\n",
        public_test_cases=json.dumps(samples.CALLS[:1]),
        private_test_cases=json.dumps(samples.CALLS[1:]),
        metadata='{"func_name": "more"}',
    )
    scenario = opened(
        "livecodebench", tmp_path / "d.jsonl", contest("a", "2025-01-01"), by_call
    )
    with closing(scenario):
        assert verdict(scenario, f"```python\n{PROGRAM}```")
        assert not verdict(scenario, "print(3)")
        assert not verdict(scenario, "import os; os._exit(0)")
        more = "class Solution:\n    def more(self, xs, n):\n        return {}\n"
        assert verdict(scenario, more.format("tuple(x + n for x in xs)"), 1)
        assert not verdict(scenario, more.format("[2, 3]"), 1)


def test_livecodebench_has_a_window(tmp_path: Path) -> None:
    rows = [contest(day, f"2025-01-{day}") for day in ("01", "02", "03")]
    path = write(tmp_path / "d.jsonl", *rows)
    scenario = get_scenario(f"livecodebench?data={path}&start=2025-01-02")
    tasks = tasks_to_measure(scenario, "all", 0, 9)
    assert {task.id for task in tasks} == {"02", "03"}
    with pytest.raises(UsageError, match="no contest from 2026-01-01"):
        get_scenario(f"livecodebench?data={path}&start=2026-01-01")


@pytest.mark.slow
def test_hidden_inputs_may_be_larger_than_what_leaves_the_sandbox(
    tmp_path: Path,
) -> None:
    large = [{**samples.HIDDEN[0], "input": "2 2\n" + " " * (20 << 20)}]
    row = contest("a", "2025-01-01", private_test_cases=samples.hidden(large))
    scenario = opened("livecodebench", tmp_path / "d.jsonl", row)
    tell_apart(scenario, [PROGRAM], ["print(3)"])


def test_a_hostile_pickle_runs_in_the_sandbox_alone(tmp_path: Path) -> None:
    target = tmp_path / "written"

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(target), "w"))

    hostile = base64.b64encode(zlib.compress(pickle.dumps(Hostile()))).decode()
    row = contest("a", "2025-01-01", private_test_cases=hostile)
    scenario = opened("livecodebench", tmp_path / "d.jsonl", row)
    told = "hidden tests cannot be read"
    with closing(scenario), pytest.raises(SandboxError, match=told):
        verdict(scenario, PROGRAM)
    assert not target.exists()


@pytest.mark.parametrize("name", sorted(CODE_BENCHMARKS))
def test_another_format_is_refused_with_the_source(name: str, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", {"question": "x"})
    broken, empty = tmp_path / "broken.jsonl", tmp_path / "empty.jsonl"
    broken.write_bytes(gzip.compress(b"{}" * 99)[:-9])
    empty.write_text("")
    for reference in (
        name,
        *(f"{name}?data={path}" for path in (other, broken, empty, tmp_path / "gone")),
    ):
        with pytest.raises(UsageError, match=r"https://|Hugging Face"):
            get_scenario(reference)


def test_a_gzipped_file_is_read_and_a_byte_order_mark_is_no_fault(
    tmp_path: Path,
) -> None:
    line = json.dumps(samples.HUMANEVAL)
    packed, marked = tmp_path / "data.jsonl.gz", tmp_path / "marked.jsonl"
    packed.write_bytes(gzip.compress(line.encode()))
    marked.write_text(line, encoding="utf-8-sig")
    for path in (packed, marked):
        [task] = tasks_to_measure(get_scenario(f"humaneval?data={path}"), "all", 0, 9)
        assert task.id == "Sample/0"
        assert "```python\nfrom typing" in task.instruction


def test_a_split_without_problems_says_how_to_measure_them(tmp_path: Path) -> None:
    scenario = opened("humaneval", tmp_path / "data.jsonl", samples.HUMANEVAL)
    empty = next(split for split in Split if split not in scenario.splits)
    with pytest.raises(UsageError, match=r"`agentgym eval --split all`"):
        scenario.tasks(empty, 0, 4)


def test_a_problem_stands_in_the_data_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="have the problem 'Sample/0' twice"):
        opened("humaneval", tmp_path / "d.jsonl", *[samples.HUMANEVAL] * 2)
