"""Training without a scenario, from the command line: a tasks file and tools."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym import TrainedAgent, TrainingConfig
from agentgym.core.agent import AgentSpec
from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from agentgym.train.trained_agent import Provenance
from agentgym.train.trainer import Trainer
from tests.cli.conftest import Command
from tests.scenarios.tool_tasks.shop import SOURCE, lines, write
from tests.ui import made_up

TOOLS = ("--tools-from", "shop_tools:TOOLS")


@pytest.fixture
def shop(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Write shop_tools.py and orders.jsonl into the command's folder."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop_tools.py").write_text(SOURCE)
    yield write(tmp_path / "orders.jsonl", lines())
    sys.modules.pop("shop_tools", None)


def test_a_dry_run_shows_the_plan(agentgym: Command, shop: Path) -> None:
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    ended = agentgym(*words, "--dry-run", "--json")
    assert ended.code == 0, ended.err
    config = json.loads(ended.out)["config"]
    source = TaskSource.parse(config["scenario"])
    assert (source.path, source.folder) == (str(shop), str(shop.parent))
    assert source.tools == ("shop_tools:TOOLS",)
    assert TrainingConfig.create(scenario=config["scenario"]).scenario_name == "orders"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train --tasks orders.jsonl", "whose tools does it call"),
        ("train coding --tasks orders.jsonl", "leave 'coding' out"),
        ("train --tasks orders.csv", "ends in .jsonl, not orders.csv"),
        ("train coding --tools-from x:y", "--tools-from is for a tasks file"),
        ("train --tools stub", "give --tasks FILE"),
        ("eval coding --tools live", "--tools is for a tasks file"),
        ("train --tasks orders.jsonl {tools} --tools odd", "not 'odd'"),
        ("train --tasks orders.jsonl {tools} --tools live", "--allow-tool NAME"),
        ("train --tasks none.jsonl {tools}", "Cannot read"),
        ("train --tasks orders.jsonl --tools-from shop_tools:NO", "has no 'NO'"),
        ("scenarios show orders.jsonl", "whose tools does it call"),
        ("scenarios record orders.jsonl {tools}", "Recording really calls tools"),
        ("scenarios record orders.jsonl {tools} --allow-tool x", "No tool is named"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    agentgym: Command, shop: Path, words: str, told: str
) -> None:
    ended = agentgym(*words.format(tools=" ".join(TOOLS)).split())
    assert ended.code == 2
    assert told in ended.err
    assert "Traceback" not in ended.err


def test_a_broken_line_is_refused_before_anything_starts(
    agentgym: Command, shop: Path
) -> None:
    shop.write_text(shop.read_text() + '{"instruction": "x", "expect": 1}\n')
    ended = agentgym("train", "--tasks", "orders.jsonl", *TOOLS)
    assert ended.code == 2
    assert "line 31: `expect` is 1, not a list" in ended.err
    assert not (shop.parent / "runs").exists()


def test_the_tripwires_run_first(agentgym: Command, shop: Path) -> None:
    (shop.parent / "generous.py").write_text(
        "def check(task, calls, state):\n    return True\n"
    )
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    ended = agentgym(*words, "--check", "generous:check", "--dry-run")
    assert ended.code == 1
    assert "orders cannot be trained on: do-nothing: family" in ended.err


def test_live_tools_are_named_in_a_warning(agentgym: Command, shop: Path) -> None:
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    live = ("--tools", "live", "--allow-tool", "refund", "--dry-run")
    ended = agentgym(*words, *live)
    assert ended.code == 0, ended.err
    assert "Warning: refund will really be called" in ended.err
    assert sys.modules["shop_tools"].CALLS == []


def test_a_starter_file_passes_the_check(agentgym: Command, shop: Path) -> None:
    made = agentgym("scenarios", "starter", *TOOLS)
    assert made.code == 0
    assert made.out.startswith("# A starter file, made from the schemas of 4 tools")
    assert "What it cannot" in made.out
    assert made == agentgym("scenarios", "starter", *TOOLS)
    Path("first.jsonl").write_text(made.out)
    checked = agentgym("scenarios", "check", "first.jsonl", *TOOLS, "--tasks", "8")
    assert checked.code == 0, checked.out
    assert agentgym("scenarios", "show", "first.jsonl", *TOOLS).code == 0
    again = agentgym("scenarios", "starter", *TOOLS, "--output", "first.jsonl")
    assert again.code == 2
    assert "first.jsonl exists" in again.err


def test_answers_are_recorded_once_with_consent(
    agentgym: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("scenarios", "record", "orders.jsonl", *TOOLS)
    allowed = ("--allow-tool", "list_orders")
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    refused = agentgym(*words, *allowed)
    assert refused.code == 2
    assert "Nothing was called" in refused.err
    assert sys.modules["shop_tools"].CALLS == []
    done = agentgym(*words, *allowed, "--yes")
    assert done.code == 0, done.err
    assert "10 answers are new" in done.out
    assert {name for name, _ in sys.modules["shop_tools"].CALLS} == {"list_orders"}
    kept = Path("orders.answers.jsonl").read_text().splitlines()
    assert json.loads(kept[0]) == {
        "tool": "list_orders",
        "args": {"customer": "Anna"},
        "answer": "[1, 2]",
    }
    assert "has an answer" in agentgym(*words, *allowed, "--yes").out
    shop.write_text(
        '{"instruction": "a", "expect": '
        '[{"tool": "cancel_order", "args": {"order_id": 1}}]}\n'
    )
    failed = agentgym(*words, "--allow-tool", "cancel_order", "--yes")
    assert failed.code == 1
    assert "RuntimeError: it was sent already" in failed.err


def log(*messages: dict[str, object]) -> str:
    return json.dumps({"messages": list(messages)}) + "\n"


def say(role: str, content: object, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


def call(name: str, arguments: str, number: int = 1) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"c{number}", "type": "function", "function": function}


def test_logs_become_tasks(agentgym: Command, tmp_path: Path) -> None:
    asked = call("track_order", '{"order_id": 7}')
    failed = call("track_order", '{"order_id": "x"}', 2)
    Path("log.jsonl").write_text(
        log(
            say("system", "You help."),
            say("user", [{"type": "text", "text": "Where is 7?"}]),
            say("assistant", None, tool_calls=[failed, asked]),
            say("tool", "Error: no", tool_call_id="c2"),
            say("tool", "sent", tool_call_id="c1"),
            say("assistant", "It was sent."),
            say("user", "And 8?"),
            say("assistant", None, tool_calls=[call("track_order", "{}")]),
        )
        + log(say("user", "Hello"), say("assistant", "Hello!"))
    )
    ended = agentgym("scenarios", "from-logs", "log.jsonl", "--output", "t.jsonl")
    assert ended.code == 0, ended.err
    assert "Left out 1: no tool was called" in ended.err
    *comments, line = Path("t.jsonl").read_text().splitlines()
    assert all(comment.startswith("#") for comment in comments)
    assert json.loads(line) == {
        "instruction": "Where is 7?",
        "expect": [{"tool": "track_order", "args": {"order_id": 7}, "answer": "sent"}],
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        ("{", "line 1, is no JSON"),
        ("[]", 'has no list "messages"'),
        ('{"messages": "hello"}', 'has no list "messages"'),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no tool was called"),
        ('{"resourceSpans": []}', "an OpenTelemetry export, which cannot be read"),
        ('{"run_type": "llm"}', "a LangSmith export, which cannot be read"),
        (
            '{"messages": [{"role": "user", "content": "a"}, {"tool_calls": [1]}]}',
            "not OpenAI-shaped",
        ),
    ],
)
def test_logs_that_cannot_be_read_are_refused(
    agentgym: Command, tmp_path: Path, text: str, told: str
) -> None:
    Path("log.jsonl").write_text(text)
    ended = agentgym("scenarios", "from-logs", "log.jsonl")
    assert ended.code == 2
    assert told in ended.err
    assert agentgym("scenarios", "from-logs", "none.jsonl").code == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nano_learns_from_thirty_lines(
    agentgym: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_TEST_TASKS", "6")
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    ended = agentgym(
        *words,
        *["--episodes", "512", "--name", "r", "--gpu", "none", "--yes", "--json"],
    )
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["ledger"]["trained"] > 0
    before, after = (result[k]["right_arguments"] for k in ("baseline", "metrics"))
    assert after["value"] > before["value"]
    assert sys.modules["shop_tools"].CALLS == []

    elsewhere = shop.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    trained = TrainedAgent.load("orders")
    assert trained.scenario.startswith(f"{shop}?")
    with pytest.raises(UsageError, match=r"to_langchain\(tools=\[...\]\)"):
        trained.to_langchain()
    few = [
        "--tasks",
        "3",
        "--samples",
        "1",
        "--framework",
        "native",
        "--gpu",
        "none",
        "--json",
    ]
    measured = agentgym("eval", "orders", "--agent", "orders", *few)
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["scenario"] == "orders"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_interrupted_run_finds_its_tasks_again(
    agentgym: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_TEST_TASKS", "3")
    monkeypatch.setenv("AGENTGYM_EVAL_SAMPLES", "1")
    scenario = f"orders.jsonl?tools={TOOLS[1]}&answers=stub"
    given = {"framework": "native", "gpu": "none", "yes": True, "name": "r"}
    Trainer().train(scenario, episodes=64, **given)  # type: ignore[arg-type]
    run = shop.parent / "runs" / "r"
    monkeypatch.chdir("/")
    result = Trainer().train(resume=run, episodes=128)
    assert result.episodes == 128


def test_an_agent_trained_live_is_measured_without(shop: Path) -> None:
    source = TaskSource(
        str(shop), ("shop_tools:TOOLS",), "live", ("refund",), folder=str(shop.parent)
    )
    agent = TrainedAgent(
        path=shop.parent,
        spec=AgentSpec(
            scenario="orders",
            framework="native",
            system_prompt="",
            tools=[],
            max_turns=6,
            max_tokens=100,
            temperature=0.5,
        ),
        provenance=Provenance(
            base_model="nano",
            config={"scenario": str(source)},
            steps=1,
            episodes=1,
            created="",
        ),
        baseline=made_up.metrics(0.5),
        metrics=made_up.metrics(0.5),
    )
    for named in ("orders", "orders.jsonl", str(shop)):
        found = agent.same_tasks(named)
        assert found is not None
        assert TaskSource.parse(found).answers == "recorded"
        assert TaskSource.parse(found).allow == ()
    assert agent.same_tasks("coding") is None
