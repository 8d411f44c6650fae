"""Each tripwire catches its own kind of broken pack, and no other does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from agentgym.evaluate.check import (
    TRIPWIRES,
    Examination,
    Finding,
    check_scenario,
    run_tripwire,
)
from agentgym.scenarios.new_pack import write_pack
from agentgym.scenarios.registry import BUILT_IN, get_scenario
from tests.cli.conftest import Command, agentgym
from tests.scenarios.data_sets import DATA_SETS

__all__ = ["agentgym"]

RIGHT = "value = 1.0 if right else 0.2 * tried"
COPY = "self.degrees = dict(rooms)  # A copy: the task must not change."
SHARED = "self.degrees = ROOMS.setdefault(0, {})\n        self.degrees.update(rooms)"
REFUSAL = 'raise ToolError(f"there is no room {room!r}.")'
OFF = 'return [NeededCall("switch_off", {"room": task.goal["room"]})]'
SEED = 'Random(f"{split.value}/{seed}/{number}")'
TEST_ROOMS = 'Split.TEST: ["cellar"'
CARD = "    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)\n"
CRITERIA = '    def success_criteria(self): return {"success": 0.9}\n'
TASKS = "return [self._task(split, seed, number) for number in range(count)]"
BROADCAST = "    def broadcast_rewards(self, trajectory): return GIVEN\n"
JUDGES = (
    "    def judge_changes(self, task, changes):\n"
    "        return Reward(0.5 if 'tests/test_own.py' in changes else 0.0, False)\n"
)

BROKEN = {
    "load/untyped": ("switch_off(self, room: str)", "switch_off(self, room)"),
    "card/name": ('= "heating"', '= "cooling"'),
    "card/criteria": (CARD, CARD + CRITERIA),
    "tools/other": ("tool_specs(House)", "tool_specs(House)[1:]"),
    "tasks/generator": (TASKS, TASKS.replace("[", "(").replace("]", ")")),
    "rollouts/crash": (REFUSAL, "raise KeyError(room)"),
    "rewards/nan": (RIGHT, RIGHT.replace("0.2 * tried", 'float("nan")')),
    "rewards/broadcast": (CARD, CARD + BROADCAST.replace("GIVEN", "None < 1")),
    "rewards/raises": ("len(calls) <= 2", "len(calls) <= 2 or 1 / 0 < 1"),
    "do-nothing/paid": ("0.2 * tried", "0.2 * (not calls)"),
    "call-everything/paid": ("brief = len(calls) <= 2", "brief = True"),
    "code/tests": (CARD, CARD + JUDGES),
    "oracle/wrong": (OFF, OFF.replace("switch_off", "read_temperature")),
    "splits/word": (TEST_ROOMS, TEST_ROOMS.replace("cellar", "kitchen")),
    "determinism/hash": (SEED, SEED.replace('f"', 'hash(f"').replace('")', '"))')),
    "isolation/shared": (COPY, SHARED),
}


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a pack that passes into ./scenarios/heating."""
    monkeypatch.chdir(tmp_path)
    return write_pack("heating")


def failed(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings if finding.status == "fail"]


def look(*names: str, tasks: int = 4) -> dict[str, Finding]:
    """Return what some tripwires find in the pack; none named: all in this process."""
    chosen = names or [name for name in TRIPWIRES if name != "determinism"]
    examined = Examination("heating", get_scenario("heating"), tasks)
    return {name: run_tripwire(name, examined) for name in chosen}


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_pack_fails_its_own_tripwire(pack: Path, fault: str) -> None:
    change(pack, *BROKEN[fault])
    name = fault.partition("/")[0]
    if name == "load":
        findings = check_scenario("heating", tasks=12)
    else:  # two fresh processes for each fault would tell nothing of the others
        names = TRIPWIRES if name == "determinism" else ()
        findings = list(look(*names, tasks=12).values())
    assert failed(findings) == [name], findings


@pytest.mark.slow
def test_misspelt_names_are_told_with_the_nearest(
    pack: Path, agentgym: Command
) -> None:
    names = '{"tool_selecton": True, "reasoning": False, "tool_execution": False}'
    components = f"    def define_trainable_components(self): return {names}\n"
    change(pack, CARD, CARD + CRITERIA + components)
    checked = agentgym("scenarios", "check", "heating", "--tasks", "1")
    planned = agentgym("train", "heating", "--framework", "native", "--dry-run")
    for said in (" ".join(checked.out.split()), planned.err):
        assert "success_criteria() has 'success', did you mean 'success_rate'?" in said
        assert "has 'tool_selecton', did you mean 'tool_selection'?" in said
        assert "'reasoning'" not in said
        assert "'tool_execution'" not in said
    assert (checked.code, planned.code) == (1, 1)


def test_arguments_without_a_type_are_a_warning(pack: Path) -> None:
    change(pack, "switch_off(self, room: str)", "switch_off(self, room: object)")
    found = look("tools")["tools"]
    assert found.status == "warn"
    assert "argument 'room' of 'switch_off' has no type" in found.why


def lines(path: Path, count: int, line: str, tools: str = "TOOLS") -> str:
    """Write a tasks file of a tool, and return its reference."""
    path.write_text("".join(line.replace("NAME", f"n{n}") + "\n" for n in range(count)))
    source = TaskSource(str(path), (f"tests.evaluate.check.few_tools:{tools}",))
    return str(source)


@pytest.mark.slow
def test_few_tools_are_not_a_reward_hack(tmp_path: Path) -> None:
    expect = '[{"tool": "get_weather", "args": {"city": "NAME"}}]'
    line = f'{{"instruction": "NAME?", "expect": {expect}}}'
    found = {f.name: f for f in check_scenario(lines(tmp_path / "t.jsonl", 24, line))}
    assert failed([*found.values()]) == []
    guessed = found["call-everything"]
    assert guessed.status == "pass"
    assert "guesses were just the calls of the plan" in guessed.why
    silent = lines(tmp_path / "t.jsonl", 24, line, "UNDESCRIBED")
    found = {f.name: f for f in check_scenario(silent, tasks=4)}
    assert failed([*found.values()]) == []
    assert found["tools"].status == "warn"
    assert "'get_weather' has no description" in found["tools"].why


@pytest.mark.slow
def test_credit_for_calls_of_the_plan_beside_others_is_not_a_reward_hack(
    tmp_path: Path,
) -> None:
    needs = (
        '{"tool": "note_side", "args": {"side": "left"}}, '
        '{"tool": "note_kind", "args": {"kind": "crack"}}, '
        '{"tool": "solve", "args": {"fault": {"anything": true}}}'
    )
    line = f'{{"instruction": "A crack on the left, NAME.", "expect": [{needs}]}}'
    reference = lines(tmp_path / "t.jsonl", 24, line, "FAULTS")
    assert failed(check_scenario(reference)) == []


def test_long_prompts_are_a_warning(pack: Path) -> None:
    change(pack, 'than 25 degrees."', 'than 25 degrees." * 99')
    findings = look()
    assert failed([*findings.values()]) == []
    assert findings["prompts"].status == "warn"
    assert "1024" in findings["prompts"].why


def test_a_scenario_without_solutions_skips_the_oracle(pack: Path) -> None:
    change(pack, "def needed_calls(", "def own_calls(")
    change(pack, "self.needed_calls", "self.own_calls")
    findings = look()
    assert findings["oracle"].status == "skip"
    assert failed([*findings.values()]) == []


@pytest.mark.slow
def test_the_command_tells_and_exits_with_1(pack: Path, agentgym: Command) -> None:
    good = agentgym("scenarios", "check", "heating", "--tasks", "4", "--json")
    assert good.code == 0
    assert json.loads(good.out)["passed"] is True
    (pack / "scenario.py").write_text("import surely_absent\n")
    bad = agentgym("scenarios", "check", "heating")
    assert bad.code == 1
    assert "pip install surely_absent" in bad.out
    assert agentgym("scenarios", "check", "heatign").code == 2


TALKATIVE = """
import subprocess

subprocess.run(["echo", "a child says that the pack is imported"])
print("the pack is imported")
"""


def test_a_pack_that_prints_spoils_neither_json_nor_a_tripwire(
    pack: Path, agentgym: Command
) -> None:
    told = 'return f"{self._known(room)}: {self.degrees[room]} degrees"'
    change(pack, told, f'print("a tool is called")\n        {told}')
    with (pack / "scenario.py").open("a") as file:
        file.write(TALKATIVE)
    checked = agentgym("scenarios", "check", "heating", "--tasks", "4", "--json")
    assert json.loads(checked.out)["passed"] is True, checked.out
    shown = agentgym("scenarios", "show", "heating", "--json")
    assert json.loads(shown.out)["name"] == "heating"
    for part in ("a child says", "a tool is called"):
        assert part in checked.err
    afterwards = agentgym("scenarios", "show", "heating")
    assert afterwards.out.startswith("heating")
    assert afterwards.err == ""


def test_a_new_pack_carries_its_name(pack: Path, agentgym: Command) -> None:
    ended = agentgym("scenarios", "new", "my_house")
    assert ended.code == 0
    assert "agentgym scenarios check my_house" in ended.out
    written = pack.parent / "my_house"
    assert len((written / "scenario.py").read_text().splitlines()) <= 120
    assert agentgym("scenarios", "show", "my_house").code == 0


def change(pack: Path, old: str, new: str) -> None:
    source = pack / "scenario.py"
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old, new))


def test_fewer_tasks_than_asked_for_are_a_warning(pack: Path) -> None:
    change(pack, "range(count)", "range(min(count, 10))")
    found = look()
    assert found.pop("tasks").status == "warn"
    assert {f.status for f in found.values()} == {"pass"}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("[] if split is Split.VALIDATION else", "tasks(validation) of heating is emp"),
        ("None if split is Split.VALIDATION else", "is None, which is not a list"),
        ("1 / 0 if split is Split.VALIDATION else", "raised ZeroDivisionError"),
    ],
)
def test_a_split_that_cannot_be_made_hides_no_other_finding(
    pack: Path, fault: str, why: str
) -> None:
    change(pack, TASKS, TASKS.replace("return", f"return {fault}"))
    found = {f.name: f for f in check_scenario("heating", tasks=4)}
    assert why in found["tasks"].why
    assert {n for n, f in found.items() if f.status == "fail"} == {
        "tasks",
        "splits",
        "determinism",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in BUILT_IN if n not in DATA_SETS])
def test_built_in_scenarios_pass(name: str) -> None:
    assert failed(check_scenario(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "status"), [("any_call", "fail"), ("no_call", "warn")]
)
def test_pay_without_a_known_plan_is_compared_with_the_highest(
    tmp_path: Path, check: str, status: str
) -> None:
    reference = lines(tmp_path / "t.jsonl", 24, '{"instruction": "Is NAME sunny?"}')
    source = replace(
        TaskSource.parse(reference), check=f"tests.evaluate.check.few_tools:{check}"
    )
    found = {f.name: f for f in check_scenario(str(source), tasks=8)}
    name = "call-everything" if check == "any_call" else "do-nothing"
    assert found[name].status == status
    assert "tasks without a known plan: 'no call'" in found[name].why


@pytest.mark.parametrize("name", ["", "My", "a-b", "../x", "1a", "coding", "heating"])
def test_bad_and_taken_names_are_refused(pack: Path, name: str) -> None:
    with pytest.raises(UsageError):
        write_pack(name)
