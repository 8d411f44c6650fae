"""The lists and cards of scenarios, runs and agents."""

import json
import os
from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.train.run_folder import RunFolder, metrics_line
from agentgym.train.trained_agent import TrainedAgent
from tests.cli.conftest import Command
from tests.train.agents import saved_agent
from tests.ui import made_up

TEXT = {"pass_1": {"value": "much"}}


def make_run(name: str, status: str = "interrupted") -> RunFolder:
    """Make a run in ./runs."""
    run = RunFolder.create(TrainingConfig.create(name=name))
    run.write_record(status=status)
    return run


def make_agent(home: Path, name: str) -> TrainedAgent:
    """Make an agent that is saved under ``name``."""
    return saved_agent(home / "made", name, 0.5, 0.97)


def test_scenarios_list_shows_the_built_in_ones(agentgym: Command) -> None:
    ended = agentgym("scenarios", "list")
    assert ended.code == 0
    heads = ended.out.splitlines()[0].split()
    assert heads == ["NAME", "DIFFICULTY", "TIME", "DESCRIPTION"]
    assert "coding" in ended.out


@pytest.mark.parametrize("group", ["scenarios", "runs", "agents"])
def test_quick_answers_equal_those_of_typer(
    agentgym: Command, own_home: Path, group: str
) -> None:
    from agentgym.cli.app import run

    make_run("first")
    make_agent(own_home, "coding")
    for words in (["list"], ["list", "--json"]):
        quick = agentgym(group, *words)
        assert quick.code == 0
        slow = agentgym(group, *words, "--debug")  # --debug takes the way of typer
        assert slow.out == quick.out
    assert run([group, "list"], 0.0) == 0


def test_lists_as_json_are_pure_json(agentgym: Command, own_home: Path) -> None:
    make_run("first")
    make_agent(own_home, "coding")
    runs = json.loads(agentgym("runs", "list", "--json").out)
    assert [(r["name"], r["status"]) for r in runs] == [("first", "interrupted")]
    agents = json.loads(agentgym("agents", "list", "--json").out)
    assert agents[0]["success"] == {"before": 0.5, "after": 0.97}


def test_killed_run_is_not_called_running(agentgym: Command) -> None:
    run = make_run("gone", "running")
    (run.path / ".lock").write_text("999999999")
    assert "killed" in agentgym("runs", "list").out
    (run.path / ".lock").write_text(str(os.getpid()))
    assert "running" in agentgym("runs", "list").out


@pytest.mark.parametrize(
    "record",
    ['{"config": null, "status": ""}', "{"],
)
def test_damaged_run_is_listed_as_unreadable_and_says_what_to_do(
    agentgym: Command, record: str
) -> None:
    run = make_run("odd")
    (run.path / "run.json").write_text(record, encoding="latin-1")
    ended = agentgym("runs", "list")
    assert ended.code == 0
    assert ended.out.splitlines()[1].split() == ["odd", "unreadable"]
    for words in (["runs", "show", "odd"], ["train", "--resume", "odd"]):
        ended = agentgym(*words)
        assert ended.code == 1
        assert "runs/odd holds no readable run" in ended.err
        assert "remove the folder and start a new run" in ended.err


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("run.json", '{"config": {"scenario": 1, "framework": {}}, "status": "x"}'),
        ("result.json", json.dumps(dict.fromkeys(("baseline", "metrics"), TEXT))),
    ],
)
def test_what_is_damaged_of_a_run_is_left_out_of_the_list(
    agentgym: Command, file: str, text: str
) -> None:
    run = make_run("odd", "x")
    (run.path / file).write_text(text)
    listed = agentgym("runs", "list")
    assert listed.code == 0
    assert listed.out.splitlines()[1].split()[:2] == ["odd", "x"]
    [row] = json.loads(agentgym("runs", "list", "--json").out)
    assert (row["success"], row["tool_reliability"]) == (None, None)


@pytest.mark.parametrize("card", ['{"spec": 1}', '{"spec": {"scenario": []}}', "[]"])
def test_damaged_agent_is_listed_as_unreadable(
    agentgym: Command, own_home: Path, card: str
) -> None:
    agent = make_agent(own_home, "odd")
    (agent.path / "agent.json").write_text(card)
    ended = agentgym("agents", "list")
    assert ended.code == 0
    assert ended.out.splitlines()[1].split() == ["odd@1", "yes", "unreadable"]


def test_broken_line_of_metrics_says_where_it_is(agentgym: Command) -> None:
    run = make_run("odd")
    run.append_metrics({"step": 1})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew\n')
    for words in (["runs", "show", "odd"], ["doctor", "odd"]):
        ended = agentgym(*words)
        assert ended.code == 1
        assert "runs/odd/metrics.jsonl, line 2, holds no step" in ended.err
        assert "Remove that line" in ended.err


def test_runs_show_tells_how_to_continue(agentgym: Command) -> None:
    run = make_run("first")
    run.append_metrics({**vars(made_up.step(7)), "step": 7})
    ended = agentgym("runs", "show", "first")
    assert ended.code == 0
    assert "7: 896 of 10,000 rollouts" in ended.out
    assert "agentgym train --resume runs/first" in ended.out
    assert "validation" not in ended.out


def test_runs_show_has_the_history_of_validation(agentgym: Command) -> None:
    run = make_run("first")
    for step, level in enumerate([None, 0.6, None, 0.8], start=1):
        validation = None if level is None else made_up.metrics(level)
        run.append_metrics(metrics_line(made_up.step(step), validation))
    table = agentgym("runs", "show", "first").out.partition("validation tasks")[2]
    assert [line.split() for line in table.splitlines()[2:4]] == [
        ["2", *["60", "%"] * 4],
        ["4", *["80", "%"] * 4],
    ]


def test_runs_show_has_the_result(agentgym: Command) -> None:
    run = make_run("first", "done")
    result = made_up.result(run.path)
    (run.path / "result.json").write_text(result.model_dump_json())
    ended = agentgym("runs", "show", "first")
    assert "97 % [94, 100]" in ended.out
    assert "--resume" not in ended.out
    shown = json.loads(agentgym("runs", "show", "first", "--json").out)
    assert shown["status"] == "done"
    assert shown["result"]["metrics"]["pass_1"]["value"] == 0.97


def test_agents_show(agentgym: Command, own_home: Path) -> None:
    make_agent(own_home, "coding")
    ended = agentgym("agents", "show", "coding")
    assert ended.code == 0
    assert "31 steps, 3,968 rollouts" in ended.out
    assert "+47 points" in ended.out
    shown = json.loads(agentgym("agents", "show", "coding", "--json").out)
    assert shown["spec"]["scenario"] == "coding"


def test_unknown_agent_names_the_nearest(agentgym: Command, own_home: Path) -> None:
    make_agent(own_home, "coding")
    ended = agentgym("agents", "show", "codign")
    assert ended.code == 2
    assert "Did you mean 'coding@1'? Available: coding@1." in ended.err


def test_scenarios_show(agentgym: Command) -> None:
    ended = agentgym("scenarios", "show", "coding")
    assert ended.code == 0
    for heading in ("The agent's system prompt", "Tools", "Some training tasks"):
        assert heading in ended.out
    card = json.loads(agentgym("scenarios", "show", "coding", "--json").out)
    assert card["name"] == "coding"
    assert card["tools"]
