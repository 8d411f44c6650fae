"""``agentgym eval``: options in, tables, files and exit codes out."""

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.prices import Prices
from agentgym.evaluate.events import Observer
from agentgym.evaluate.result import Evaluation
from agentgym.train import trainer
from tests.cli.conftest import Command
from tests.ui import made_up


class FakeTrainer:
    """Measures at once; an agent is better than ``nano``."""

    calls: ClassVar[list[tuple[TrainingConfig, dict[str, Any]]]]

    def __init__(self, config: TrainingConfig, *, progress: Observer) -> None:
        self.config = config

    def evaluate(self, **given: Any) -> Evaluation:
        self.calls.append((self.config, given))
        level = 0.5 if self.config.model == "nano" and not given["agent"] else 0.9
        tasks, samples = given["tasks"] or 12, given["samples"] or 4
        return made_up.evaluation(level, tasks=tasks, samples=samples)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTrainer]:
    """Put a fake in Trainer's place and return it."""

    class Fake(FakeTrainer):
        calls: ClassVar[list[tuple[TrainingConfig, dict[str, Any]]]] = []

    monkeypatch.setattr(trainer, "Trainer", Fake)
    return Fake


def test_options_become_settings(agentgym: Command, fake: type[FakeTrainer]) -> None:
    words = "--agent coding --tasks 8 --task t-1 --seed 3 --split validation"
    words += " --concurrency 2"
    prices = "--price-in 2 --price-out 8 --no-baselines"
    assert agentgym("eval", "coding", *words.split(), *prices.split()).code == 0
    [(config, given)] = fake.calls
    assert (config.seed, config.concurrency) == (3, 2)
    assert given == {
        "agent": "coding",
        "split": "validation",
        "tasks": 8,
        "samples": None,
        "cache_requests": None,
        "prices": Prices(prompt=2, response=8),
        "task": "t-1",
        "baselines": False,
    }


def test_shows_everything(agentgym: Command, fake: type[FakeTrainer]) -> None:
    ended = agentgym("eval", "coding", "--agent", "coding")
    for part in (
        "12 tasks, 48 rollouts",
        "pass^4",
        "prompt tokens",
        "do-nothing",
        "right     40  83.3 %",
        "Tool needed (rows), tool called (columns)",
        "(no call)",
    ):
        assert part in ended.out
    assert max(map(len, ended.out.splitlines())) <= 100


@pytest.mark.parametrize("compare", [[], ["--compare", "nano", "nano"]], ids=len)
@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("no/folder/a.md", "no/folder/a.md cannot be written: the folder no/folder"),
        ("file/a.md", "file/a.md cannot be written: the folder file does"),
        ("folder", "folder cannot be written: it is a folder"),
        ("sealed/a.md", "the folder sealed is not writable"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_measuring(
    agentgym: Command,
    fake: type[FakeTrainer],
    monkeypatch: pytest.MonkeyPatch,
    compare: list[str],
    path: str,
    part: str,
) -> None:
    def access(place: Path | str, mode: int) -> bool:  # root may write everywhere
        return Path(place).name != "sealed"

    monkeypatch.setattr(os, "access", access)
    Path("file").write_text("")
    Path("folder").mkdir()
    Path("sealed").mkdir()
    for option in ["--markdown"] if compare else ["--markdown", "--save"]:
        ended = agentgym("eval", "coding", *compare, option, path)
        assert ended.code == 2
        assert part in ended.err
    assert fake.calls == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--fail-under", "0.95"], 0),
        (["--fail-under", "pass_1=0.4"], 0),
        (["--fail-under", "pass_1=0.6"], 1),
        (["--fail-under", "0.95", "--fail-under", "pass_k=0.9"], 1),
        (["--fail-under-low", "tool_reliability=0.99"], 1),
        (["--fail-under", "95"], 2),
        (["--fail-under", "pass_1=many"], 2),
        (["--fail-under", "pas_1=0.5"], 2),
    ],
    ids=str,
)
def test_gates(
    agentgym: Command, fake: type[FakeTrainer], words: list[str], code: int
) -> None:
    ended = agentgym("eval", "coding", *words)
    assert ended.code == code
    assert ("is below" in ended.err) == (code == 1)


def test_compare_measures_both(agentgym: Command, fake: type[FakeTrainer]) -> None:
    ended = agentgym("eval", "coding", "--compare", "nano", "openai:gpt-x", "--json")
    assert ended.code == 0
    assert [config.model for config, _ in fake.calls] == ["nano", "openai:gpt-x"]
    assert fake.calls[0][1] == fake.calls[1][1]
    found = json.loads(ended.out)["comparison"]
    assert found["p_value"] < 0.01
    assert found["differences"]["pass_1"]["low"] > 0
    assert "pass^1: B is better (p = 0.0" in ended.err


def test_compare_of_the_same(agentgym: Command, fake: type[FakeTrainer]) -> None:
    assert agentgym("eval", "coding", "--save", "a.json", "--seed", "5").code == 0
    ended = agentgym("eval", "coding", "--compare", "a.json", "nano")
    assert ended.code == 0
    assert "no difference shown (p = 1.0000" in ended.out
    assert "+0 points" in ended.out
    given = fake.calls[-1][1]
    assert (given["tasks"], given["samples"], given["split"]) == (12, 4, "test")


def test_compare_needs_the_same_tasks(
    agentgym: Command, fake: type[FakeTrainer]
) -> None:
    made_up.evaluation(0.5, tasks=3).save(Path("a.json"))
    made_up.evaluation(0.5, tasks=4).save(Path("b.json"))
    ended = agentgym("eval", "coding", "--compare", "a.json", "b.json")
    assert ended.code == 2
    assert "not measured on the same tasks" in ended.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--agent", "a", "--model", "b"], "a is a trained agent, and has its model"),
        (["--split", "tset"], "No split is named 'tset'"),
        (["--compare", "nano", "no_such"], "No trained agent is named 'no_such'"),
        (["--compare", "nano", "no.json"], "no.json is not a saved evaluation"),
        (["--compare", "nano", "nano", "--model", "x"], "names both sides"),
        (["--price-in", "1"], "both --price-in and --price-out"),
        (["--model", "opnai:gpt"], "Did you mean 'openai'"),
        (["--model", "openai:gpt"], "OPENAI_API_KEY"),
    ],
    ids=str,
)
def test_refuses_what_cannot_be_meant(
    agentgym: Command, words: list[str], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ended = agentgym("eval", "coding", *words)
    assert ended.code == 2
    assert part in ended.err


def test_a_provider_s_model_is_not_trained(agentgym: Command) -> None:
    ended = agentgym("train", "coding", "--model", "openai:gpt-x")
    assert ended.code == 2
    assert "it can be measured" in ended.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--agent coding --temperature 0", "coding is measured at the temperature"),
        ("--model nano --temperature -1", "eval_temperature = -1.0"),
        ("--model x:y --cache-requests no/such", "the folder no does not exist"),
        ("--model x:y --cache-requests .", "it is a folder"),
    ],
)
def test_a_temperature_or_a_file_of_answers_that_cannot_be_meant_is_refused(
    agentgym: Command, fake: type[FakeTrainer], words: str, told: str
) -> None:
    ended = agentgym("eval", "coding", *words.split())
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert fake.calls == []


def test_a_saved_evaluation_of_tasks_that_changed_is_not_compared(
    agentgym: Command, fake: type[FakeTrainer]
) -> None:
    for digest in ("a", "b"):
        found = made_up.evaluation(0.5).model_copy(update={"task_digest": digest})
        found.save(Path(f"{digest}.json"))
    assert agentgym("eval", "coding", "--compare", "a.json", "a.json").code == 0
    ended = agentgym("eval", "coding", "--compare", "a.json", "b.json")
    assert ended.code == 2
    assert "ids, but changed in between" in " ".join(ended.err.split())
