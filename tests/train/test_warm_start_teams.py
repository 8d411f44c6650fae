"""A warm start plays plans in agents whose tools are reached by hand-offs."""

import json
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.scripted import Reply
from agentgym.evaluate.check import check_scenario
from agentgym.rollout.absolute_paths import located
from agentgym.scenarios.registry import get_scenario
from agentgym.train import warm_start
from agentgym.train.warm_start import FineTuning
from tests.scripted_engine import ScriptedEngine, made_run

LIVE = "tests.integrations.langchain.live_agents"
TUTORIAL = "tests.integrations.langchain.tutorial_agents"
AUTOGEN = "tests.plugins.autogen.authored"
FIND = {"tool": "find_book", "args": {"title": "BOOK"}}
LEND = {"tool": "lend_book", "args": {"book": "BOOK", "member": "Ann"}}
LIST = {"tool": "list_files", "args": {}}


def imitated(folder: Path, agent: str, *expect: object) -> list[str]:
    """Return each answer that was imitated of a tasks file that expects some calls."""
    tasks = folder / f"{agent.partition(':')[2]}.jsonl"
    lines = (
        json.dumps({"instruction": "Lend BOOK to Ann.", "expect": expect}).replace(
            "BOOK", f"B{number}"
        )
        for number in range(14)
    )
    tasks.write_text("\n".join(lines))
    config = located(TrainingConfig.create(scenario=str(tasks), agent=agent))
    engine = ScriptedEngine(lambda request: Reply("Done."))
    made = FineTuning(made_run(config, get_scenario(config.scenario), engine)).run()
    assert (made.imitated, made.failed) == (made.tasks, {})
    [check] = [
        f for f in check_scenario(config.scenario, tasks=4) if f.name == "oracle"
    ]
    assert check.status == "pass"
    batch = engine.imitated[0]
    return [
        bytes(sequence.ids[token.position] for token in sequence.trained).decode()
        for sequence in batch.sequences
    ]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "LEAST_UPDATES", 1)


@pytest.mark.slow
def test_graphs_hand_over_to_who_has_the_tool(tmp_path: Path) -> None:
    answers = imitated(tmp_path, f"{LIVE}:swarm", FIND, LEND)
    assert any("transfer_to_lender" in each for each in answers)
    answers = imitated(tmp_path, f"{LIVE}:supervisor", LEND)
    asked = [each for each in answers if "ask_lender" in each]
    assert "Lend B" in asked[0]  # the colleague is told the request


@pytest.mark.slow
def test_a_call_that_a_node_has_checked_is_made_again(tmp_path: Path) -> None:
    found = {"tool": "find_book", "args": {"title": "all"}}
    answers = imitated(tmp_path, f"{TUTORIAL}:rechecking", found, LEND)
    assert not any("find_book" in each for each in answers)  # own code makes it
    calls = [each for each in answers if "lend_book" in each]
    assert len(calls) == 2 * len([each for each in answers if each == "Done."])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("team", "handed"), [("swarm", "transfer_to_worker"), ("selected", "worker")]
)
def test_teams_of_autogen_reach_who_has_the_tool(
    tmp_path: Path, team: str, handed: str
) -> None:
    answers = imitated(tmp_path, f"{AUTOGEN}:{team}", LIST)
    assert any(handed in each for each in answers)
