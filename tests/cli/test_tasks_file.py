"""Training without a scenario, from the command line: a tasks file and tools."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agentgym import TrainedAgent, TrainingConfig
from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from tests.cli.conftest import Command
from tests.plugins.logs import harbour
from tests.rollout.stub_server import Handler, StubServer, completion
from tests.scenarios.tool_tasks.conftest import shop
from tests.scenarios.tool_tasks.shop import CUSTOMERS
from tests.train.agents import make_agent

__all__ = ["shop"]

TOOLS = ("--tools-from", "shop_tools:TOOLS")


@pytest.mark.slow
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
        ("train --tasks orders.csv", "ends in .jsonl, not 'orders.csv'"),
        ("train coding --tools-from x:y", "--tools-from is for a tasks file"),
        ("train --tools stub", "give --tasks FILE"),
        ("eval coding --tools live", "--tools is for a tasks file"),
        ("train --tasks orders.jsonl {tools} --tools live", "--allow-tool NAME"),
        ("train --tasks none.jsonl {tools}", "Did you mean 'orders.jsonl'?"),
        ("eval", "What to measure on?"),
        ("inspect a:b --agent c:d", "Which agent? Give a:b or --agent c:d"),
        ("rollout orders.jsonl --tools calculator --model nano", "'calculator'"),
        ("train --tasks orders.jsonl --tools-from shop_tools:NO", "has no 'NO'"),
        ("tasks record orders.jsonl {tools}", "Recording really calls tools"),
        ("tasks record orders.jsonl {tools} --allow-tool x", "No tool is named"),
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
    assert "line 31: expect: Input should be a valid list (it is 1)" in ended.err
    assert not (shop.parent / "runs").exists()


@pytest.mark.slow
def test_the_tripwires_run_first(agentgym: Command, shop: Path) -> None:
    (shop.parent / "generous.py").write_text(
        "def check(task, calls, state):\n    return True\n"
    )
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    ended = agentgym(*words, "--check", "generous:check", "--dry-run")
    assert ended.code == 1
    assert "orders cannot be trained on: do-nothing: family" in ended.err


@pytest.mark.slow
def test_live_tools_are_named_in_a_warning(agentgym: Command, shop: Path) -> None:
    words = ("train", "--tasks", "orders.jsonl", *TOOLS, "--framework", "native")
    live = ("--tools", "live", "--allow-tool", "refund", "--dry-run")
    ended = agentgym(*words, *live)
    assert ended.code == 0, ended.err
    assert "Warning: refund will really be called" in ended.err
    assert sys.modules["shop_tools"].CALLS == []


@pytest.mark.slow
def test_a_starter_file_passes_the_check(agentgym: Command, shop: Path) -> None:
    made = agentgym("tasks", "starter", *TOOLS)
    assert made.code == 0
    assert made.out.startswith("# A starter file, made from the schemas of 4 tools")
    assert "What it cannot" in made.out
    assert made == agentgym("tasks", "starter", *TOOLS)
    Path("first.jsonl").write_text(made.out)
    checked = agentgym("scenarios", "check", "first.jsonl", *TOOLS, "--tasks", "8")
    assert checked.code == 0, checked.out
    assert agentgym("scenarios", "show", "first.jsonl", *TOOLS).code == 0
    again = agentgym("tasks", "starter", *TOOLS, "--output", "first.jsonl")
    assert again.code == 2
    assert "first.jsonl exists" in again.err


@pytest.mark.slow
def test_answers_are_recorded_once_with_consent(
    agentgym: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("tasks", "record", "orders.jsonl", *TOOLS)
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


@pytest.mark.slow
def test_real_answers_are_recorded_where_the_agent_calls_its_tools(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "till_agent.py").write_text(
        "import os\n"
        "from langchain.agents import create_agent\n"
        "from langchain_core.tools import tool\n"
        "from langchain_openai import ChatOpenAI\n"
        "@tool\n"
        "def price_of(item: str) -> str:\n"
        "    'Look up a price.'\n"
        "    return f'{item} in process {os.getpid()}'\n"
        "agent = create_agent(ChatOpenAI(model='gpt-5'), [price_of])\n"
    )
    own = ("--agent", "till_agent:agent", "--allow-tool", "price_of", "--yes")
    missing = agentgym("tasks", "record", "nofile.jsonl", *own)
    assert missing.code == 2
    assert "till_agent" not in sys.modules, "the file is looked for first"
    with Path("till.jsonl").open("w") as file:
        for n in range(14):
            call = {"tool": "price_of", "args": {"item": ("tea", "jam")[n % 2]}}
            line = {"instruction": f"Price {n}?", "expect": [call]}
            file.write(f"{json.dumps(line)}\n")
    done = agentgym("tasks", "record", "till.jsonl", *own)
    assert done.code == 0, done.err
    assert "2 answers are new" in done.out
    lines = Path("till.answers.jsonl").read_text().splitlines()
    answers = [json.loads(line)["answer"] for line in lines]
    assert [answer.partition(" ")[0] for answer in answers] == ["tea", "jam"]
    [process] = {answer.rpartition(" ")[2] for answer in answers}  # one worker's
    assert process != str(os.getpid())


def test_reviewers_decisions_become_tasks(agentgym: Command) -> None:
    asked = [{"name": "track_order", "args": {"order_id": 7}}]
    edit = {"type": "edit", "edited_action": {**asked[0], "args": {"order_id": 8}}}
    review: dict[str, Any] = {"messages": [{"role": "user", "content": "Where is 8?"}]}
    review |= {"action_requests": asked, "decisions": [edit]}
    Path("reviews.jsonl").write_text(json.dumps(review))
    words = ("tasks", "from-reviews", "reviews.jsonl", "--output", "t.jsonl")
    ended = agentgym(*words)
    assert ended.code == 0, ended.err
    assert ended.err.endswith("1 tasks from reviewers' decisions: edit 1.\n")
    assert json.loads(Path("t.jsonl").read_text().splitlines()[-1])["expect"] == [
        {"tool": "track_order", "args": {"order_id": 8}}
    ]


@pytest.mark.slow
def test_traces_become_tasks_of_an_agents_own_tools(
    agentgym: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "harbour_agent.py").write_text(
        "from langchain.agents import create_agent\n"
        "from langchain_openai import ChatOpenAI\n"
        f"{harbour.SOURCE}\n"
        "agent = create_agent(ChatOpenAI(model='gpt-5'), TOOLS,\n"
        "    system_prompt='You run the desk of Gull Harbour.')\n"
    )
    Path("log.json").write_text(json.dumps(harbour.langsmith(), indent=2))
    own = ("--agent", "harbour_agent:agent")
    ended = agentgym("tasks", "from-logs", "log.json", *own, "--output", "t.jsonl")
    assert ended.code == 0, ended.err
    assert "1 tasks from LangSmith; 2 calls with their tool's answer" in ended.err
    assert json.loads(Path("t.jsonl").read_text().splitlines()[-1]) == harbour.LINE
    made = agentgym("tasks", "starter", *own, "--output", "s.jsonl")
    assert made.code == 0, made.err
    assert agentgym("scenarios", "check", "s.jsonl", *own, "--tasks", "8").code == 0
    assert "hold_boat" in agentgym("scenarios", "show", "s.jsonl", *own).out
    recorded = ("tasks", "record", "t.jsonl", *own)
    assert "has an answer" in agentgym(*recorded, "--allow-tool", "hold_boat").out
    for words in (
        ("starter",),
        ("record", "t.jsonl", "--allow-tool", "hold_boat"),
        ("starter", *own, "--tools-from", "harbour_agent:TOOLS"),
        ("from-logs", "log.json", *own, "--tools-from", "harbour_agent:TOOLS"),
    ):
        refused = agentgym("tasks", *words)
        assert (refused.code, "Whose tools? Give" in refused.err) == (2, True)

    train = ("train", *own)
    dry = agentgym(*train, "--dry-run")
    assert (dry.code, Path("agent_tasks.jsonl").exists()) == (2, False)
    assert "--output agent_tasks.jsonl" in dry.err
    first = agentgym(*train)
    assert first.code == 2
    assert "needs tasks to be trained on. Wrote agent_tasks.jsonl: 32 req" in first.err
    command = (
        "agentgym train --agent harbour_agent:agent --tasks agent_tasks.jsonl "
        "--warm-start"
    )
    assert f"    {command}\n" in first.err
    again = agentgym(*train)
    assert again.code == 2
    assert "agent_tasks.jsonl is here, still as it was made" in again.err
    given = agentgym(*train, "--model", "nano").err
    assert "train --agent harbour_agent:agent --model nano --tasks agent_tas" in given
    Path("agent_tasks.jsonl").write_text("mine\n")
    assert "agent_tasks.jsonl is here. To train" in agentgym(*train).err
    assert Path("agent_tasks.jsonl").read_text() == "mine\n"
    assert not Path("runs").exists()
    sys.modules.pop("harbour_agent", None)


def written_by(*answers: str) -> Handler:
    """Return a server's model that gives one answer after the other."""
    left = list(answers)

    async def respond(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response(completion(left.pop(0) if left else "I am done."))

    return respond


def told(number: int, tool: str, text: str, **args: Any) -> str:
    line = {"instruction": text, "expect": [{"tool": tool, "args": args}]}
    return json.dumps(line)


@pytest.mark.slow
def test_a_model_writes_tasks(agentgym: Command, shop: Path) -> None:
    def some(tool: str, text: str, start: int, **more: Any) -> list[str]:
        return [
            told(n, tool, text.format(n), order_id=n, **more)
            for n in range(start, start + 8)
        ]

    track = some("track_order", "Where on earth is my order {}?", 5100)
    cancel = some("cancel_order", "I no longer want {}, please call it off.", 6100)
    both = [
        json.dumps(
            {
                "instruction": f"Look after parcel {n} and, whatever it is, cancel it.",
                "expect": [
                    {"tool": "track_order", "args": {"order_id": n}, "answer": "sent"},
                    {"tool": "cancel_order", "args": {"order_id": n}},
                ],
                "why": "it needs two",
            }
        )
        for n in range(7100, 7108)
    ]
    listed = [
        told(0, "list_orders", f"Show me what {name} bought.", customer=name)
        for name in CUSTOMERS[:8]
    ]
    paid = some("refund", "Pay me 20 back for {}.", 8100, amount=20.0)
    every = json.loads(both[0])
    every["instruction"] += " And pay me back."
    every["expect"].append({"tool": "refund", "args": {"order_id": 1, "amount": 2}})
    bad = [
        json.dumps(every),
        told(0, "track_order", "Where is my stuff?", order_id=4711),
        told(0, "trak_order", "Where is order 5?", order_id=5),
        told(0, "track_order", "Where is order x?", order_id="x"),
        '{"instruction": "Nothing."}',
        track[0],
    ]
    answers = (
        "```json\n[" + ",\n".join([*track, *bad]) + "]\n```",
        "Here you are:\n" + "\n".join(cancel),
        "\n\n".join(listed),
        json.dumps([json.loads(each) for each in paid]),
        json.dumps({"tasks": [json.loads(each) for each in both]}),
    )
    with StubServer(written_by(*answers)) as server:
        words = (
            "--model-for-tasks",
            f"{server.endpoint}#writer",
            "--output",
            "w.jsonl",
        )
        made = agentgym("tasks", "starter", *TOOLS, *words)
    assert made.code == 0, made.err
    assert len(server.bodies) == 7
    assert "Asking writer at http" in made.err
    assert "40 tasks" in made.err
    for why in (
        "does not say order_id",
        "Did you mean 'track_order'",
        "came before",
        "nearly every tool",
    ):
        assert why in made.err
    said = server.bodies[4]["messages"][1]["content"]
    assert "must not come again: " in said
    assert "5100" in said
    body = Path("w.jsonl").read_text()
    assert body.startswith("# Written by writer, of the schemas of 4 tools")
    assert '"answer"' not in body
    words = ("check", "w.jsonl", *TOOLS, "--tasks", "8")
    assert agentgym("scenarios", *words).code == 0


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
    trained = TrainedAgent.load("r@1")
    assert trained.scenario.startswith(f"{shop}?")
    with pytest.raises(UsageError, match=r"to_langchain\(tools=\[...\]\)"):
        trained.to_langchain()
    given = "--agent r@1 --tasks 3 --samples 1 --framework native --gpu none"
    measured = agentgym("eval", "orders", *given.split(), "--json")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["scenario"] == "orders"


def test_an_agent_trained_live_is_measured_without(shop: Path) -> None:
    source = TaskSource(
        str(shop), ("shop_tools:TOOLS",), "live", ("refund",), folder=str(shop.parent)
    )
    config = {"scenario": str(source)}
    agent = make_agent(shop.parent / "made", 0.5, 0.5, scenario="orders", config=config)
    for named in ("orders", "orders.jsonl", str(shop)):
        found = agent.same_tasks(named)
        assert found is not None
        assert TaskSource.parse(found).answers == "recorded"
        assert TaskSource.parse(found).allow == ()
    assert agent.same_tasks("coding") is None
