"""``agentgym agents``, and what training and measuring say of versions."""

import json
from pathlib import Path

import pytest

from agentgym import TrainedAgent
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from agentgym.evaluate import evaluation
from agentgym.train import loop
from agentgym.train.export import keep
from tests.cli.conftest import Command
from tests.scripted_engine import ScriptedEngine
from tests.train.agents import make_agent, saved_agent

SCENARIO = '''
from agentgym import Reward
from tests.made_packs import Looking


class Skill(Looking):
    """The agent says how many of the tasks it solves."""

    name = "skill"

    def about(self, split, number):
        return {"instruction": "Say a number.", "goal": {"number": number}}

    def calculate_reward(self, task, environment, trajectory):
        said = trajectory.answer or ""
        solved = said.isdigit() and task.goal["number"] < int(said)
        if task.split == "train":  # where attempts differ, so that there is a gradient
            solved = trajectory.rollout_id.endswith("0")
        return Reward(float(solved), solved)
'''


class Learner(ScriptedEngine):
    """Solves one task before training, and ``learned`` ones after."""

    def __init__(self, learned: int) -> None:
        super().__init__(self._reply)
        self._learned = learned

    def _reply(self, request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "user":
            return Reply(calls=[("look", {})])
        return Reply(str(self._learned if self.step else 1))

    def export(self, folder: Path) -> None:
        super().export(folder)
        (folder / "config.json").write_text("{}")


@pytest.fixture
def train(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> "Train":
    """Return a function that trains through the command line."""
    pack = tmp_path / "scenarios" / "skill"
    pack.mkdir(parents=True)
    (pack / "scenario.py").write_text(SCENARIO)
    return Train(agentgym, monkeypatch)


class Train:
    """Trains an agent that then solves so many of its held-out tasks."""

    def __init__(self, agentgym: Command, patch: pytest.MonkeyPatch) -> None:
        self._agentgym = agentgym
        self._patch = patch

    def __call__(self, learned: int, *, tasks: int = 16, name: str) -> str:
        """Return what the terminal shows."""
        small = {"group_size": 2, "tasks_per_step": 2, "eval_samples": 1}
        sizes = {"eval_tasks": 4, "test_tasks": tasks, "workers": 1, **small}
        for setting, value in sizes.items():
            self._patch.setenv(f"AGENTGYM_{setting.upper()}", str(value))
        self._patch.setattr(loop, "create_engine", lambda _: Learner(learned))
        words = ["--framework", "native", "--set", "tracker=none", "--episodes", "4"]
        words += ["--name", "skill", "--output", f"runs/{name}"]
        ended = self._agentgym("train", "skill", *words)
        assert ended.code == 0, ended.err
        return " ".join(ended.out.split())


@pytest.mark.slow
def test_a_worse_run_never_replaces_a_better_one(
    agentgym: Command, train: Train
) -> None:
    first = train(8, name="first")
    assert "Saved as skill@1, now the default: it is the first version of" in first
    better = train(16, name="better")
    assert (
        "Saved as skill@2, now the default: it solves more than skill@1 did: 100 % "
        "against 50 % of held-out tasks." in better
    )
    worse = train(12, name="worse")
    assert (
        "Saved as skill@3, not as the default: skill@2 solves more: 100 % against 75 % "
        "of held-out tasks. Make it the default with: agentgym agents use skill@3"
        in worse
    )
    assert 'TrainedAgent.load("skill@3")' in worse

    listed = agentgym("agents", "list").out.splitlines()
    assert [line.split()[:1] + line.split("  ")[1:2] for line in listed[1:]] == [
        ["skill@1", ""],
        ["skill@2", "yes"],
        ["skill@3", ""],
    ]
    rows = json.loads(agentgym("agents", "list", "--json").out)
    assert [(row["name"], row["default"], row["run"]) for row in rows] == [
        ("skill@1", False, "skill"),
        ("skill@2", True, "skill"),
        ("skill@3", False, "skill"),
    ]
    assert [row["success"]["after"] for row in rows] == [0.5, 1.0, 0.75]
    assert TrainedAgent.load("skill").name == "skill@2"


def test_use_chooses_the_default(
    agentgym: Command, own_home: Path, tmp_path: Path
) -> None:
    for number, after in enumerate((0.9, 0.6)):
        saved_agent(tmp_path / str(number), "coding", 0.5, after)
    assert TrainedAgent.load("coding").name == "coding@2"
    ended = agentgym("agents", "use", "coding@1")
    assert ended.code == 0
    assert (
        ended.out == "coding means coding@1 from now on, whatever later runs reach; "
        "until now it meant coding@2.\n"
    )
    assert TrainedAgent.load("coding").name == "coding@1"
    better = keep(make_agent(tmp_path / "better", 0.5, 1.0), "coding")
    assert not better.is_default
    assert better.reason == "coding@1 was chosen with `agentgym agents use`"
    again = agentgym("agents", "use", "coding@1")
    assert (again.code, again.out) == (0, "coding means coding@1 already.\n")
    assert "the default of coding" in agentgym("agents", "show", "coding").out
    freed = agentgym("agents", "use", "--auto", "coding")
    assert freed.out == (
        "A better run of coding becomes its default again; now it is coding@1.\n"
    )
    assert keep(make_agent(tmp_path / "best", 0.5, 1.0), "coding").is_default
    agentgym("agents", "use", "coding@1")
    other = agentgym("agents", "show", "coding@2").out
    assert other.startswith("coding@2  not the default; make it so with: agentgym")
    shown = json.loads(agentgym("agents", "show", "coding@2", "--json").out)
    assert (shown["name"], shown["default"]) == ("coding@2", False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("coding", "'coding' does not say which version"),
        ("coding@x", "Available: coding@1, coding@2."),
        ("coding@7", "No version of coding is named 'coding@7'."),
        ("codign@1", "Did you mean 'coding@1'? Available: "),
        ("../agents/coding@1", "No trained agent is named '../agents/coding@1'"),
    ],
)
def test_use_refuses_what_is_no_version(
    agentgym: Command, tmp_path: Path, name: str, told: str
) -> None:
    made = make_agent(tmp_path / "made", 0.5, 0.9)
    for saved_as in ("coding", "coding", "other"):
        made.save(saved_as)
    ended = agentgym("agents", "use", name)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert ended.err.count("\n") == 1
    assert TrainedAgent.load("coding").name == "coding@2"


@pytest.mark.slow
def test_eval_says_that_an_agent_was_trained_on_another_scenario(
    agentgym: Command, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "create_engine", lambda _: Learner(2))
    train(2, name="own")
    saved_agent(tmp_path / "a", "coding", 0.5, 0.9)
    told = "coding@1 was trained on coding, not on skill: its prompt and tools here are"
    words = ["--framework", "native", "--save", "a.json", "--markdown", "a.md"]
    ended = agentgym("eval", "skill", "--agent", "coding@1", *words)
    assert ended.code == 0, ended.err
    assert told in " ".join(ended.out.split())
    assert told in Path("a.md").read_text()
    assert told in json.loads(Path("a.json").read_text())["notes"][0]
    both = ["--framework", "native", "--markdown", "b.md"]
    ended = agentgym("eval", "skill", "--compare", "skill@1", "a.json", *both)
    assert ended.code == 0, ended.err
    assert told in " ".join(ended.out.split())
    assert "A: skill@1" in ended.out
    assert told in Path("b.md").read_text()
    own = agentgym("eval", "--agent", "skill@1", *words[:2], "--json")
    assert json.loads(own.out)["notes"] == []
    assert json.loads(own.out)["subject"] == "skill@1"
    assert "was trained on" not in own.err
