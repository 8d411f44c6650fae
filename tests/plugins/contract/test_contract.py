"""An agent's contract: red and green, recorded and replayed, its reports."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from aiohttp import web

from agentgym.core.trajectory import ModelCall, RequestedCall, Trajectory
from agentgym.errors import AgentGymError, UsageError
from agentgym.plugins.contract.contract import Contract, read_contract
from agentgym.plugins.contract.recording import RecordedAnswers, changes
from tests.cli.conftest import Command, agentgym
from tests.rollout.stub_server import StubServer, completion
from tests.some import some

__all__ = ["agentgym"]

pytestmark = pytest.mark.timeout(300)

APP = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def book_visit(day: str) -> str:
    """Book a visit on a day."""
    return f"Booked on {day}."


@tool
def cancel_visit(visit: str) -> str:
    """Cancel a visit by its number."""
    return f"{visit} is cancelled."


model = ChatOpenAI(model="gpt-4.1-mini", api_key="none")
agent = create_agent(
    model, [book_visit, cancel_visit], system_prompt="You work at a desk."
)
'''
DAYS = [f"may-{number}" for number in range(1, 13)]
CONTRACT = {
    "agent": "desk_app:agent",
    "tasks": "tasks.jsonl",
    "samples": 2,
    "tools": "live",
    "allow_tools": ["book_visit"],
    "limits": {"pass_1": 0.3, "reliability": 0.3, "tasks": {"may-7": 0.1}},
}


async def book(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Book the visit that is asked for, if the tool still says that it books."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return web.json_response(completion("Done."))
    texts = {t["function"]["name"]: t["function"] for t in body["tools"]}
    name = "book_visit"
    if not texts[name]["description"].startswith("Book"):
        name = "cancel_visit"
    key = next(iter(texts[name]["parameters"]["properties"]))
    day = str(last["content"]).split()[-1]
    function = {"name": name, "arguments": json.dumps({key: day})}
    call = {"id": f"call-{day}", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return web.json_response(completion(message=message, finish_reason="tool_calls"))


class Desk:
    """A folder with an app, its tasks and its contract."""

    def __init__(self, folder: Path, run: Command, model: str) -> None:
        self.folder = folder
        self._run = run
        lines = [
            {
                "id": day,
                "instruction": f"Please book a visit on {day}",
                "expect": [{"tool": "book_visit", "args": {"day": day}}],
            }
            for day in DAYS
        ]
        rows = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "tasks.jsonl").write_text(rows)
        self.app()
        self.contract(model=model)

    def app(self, old: str = "", new: str = "") -> None:
        assert old in APP
        (self.folder / "desk_app.py").write_text(APP.replace(old, new) if old else APP)

    def contract(self, **fields: Any) -> None:
        text = json.dumps({**CONTRACT, **fields})  # JSON is YAML
        (self.folder / "contract.yaml").write_text(text)

    def test(self, *words: str) -> tuple[int, str, str]:
        import sys

        sys.modules.pop("desk_app", None)
        ended = self._run("test", *words)
        return ended.code, ended.out, ended.err


@pytest.fixture
def desk(tmp_path: Path, agentgym: Command) -> Iterator[Desk]:
    with StubServer(book) as server:
        yield Desk(tmp_path, agentgym, f"{server.endpoint}#m")


@pytest.mark.slow  # evaluations with worker processes, and replays
def test_a_worse_description_breaks_the_contract_until_it_is_mended(desk: Desk) -> None:
    code, out, err = desk.test("--record", "--junit", "out.xml", "--html", "out.html")
    assert code == 0, err
    assert f"The contract {desk.folder.name} is kept (12 tasks, 24 attempts" in out
    assert "may-7: pass_1 >= 0.1" in out
    found = ElementTree.parse(desk.folder / "out.xml").getroot()
    assert found.get("failures") == "0"
    names = {case.get("name") for case in some(found.iter("testcase"))}
    assert names >= {"pass_1 >= 0.3", "tool_reliability >= 0.3", *DAYS}
    page = (desk.folder / "out.html").read_text()
    assert f"<h1>Contract {desk.folder.name}: kept</h1>" in page
    assert "<script" not in page

    # The same agent needs no model.
    desk.contract(model="http://127.0.0.1:9/v1#nothing")
    assert desk.test("--replay")[0] == 0

    desk.app("Book a visit on a day.", "Does things.")
    code, out, _ = desk.test("--replay")
    assert code == 1
    assert "tool book_visit: its description changed" in " ".join(out.split())
    desk.app('    return f"Booked on {day}."', "    return 'OK'")
    code, out, _ = desk.test("--replay", "--json")
    assert code == 0, "results of tools are no request of the model"
    body = json.loads(out)
    assert body["changes"] == [
        "tool book_visit: its result changed (12 tasks, as in may-1)"
    ]
    desk.app("day: str", "day: str, hour: int = 9")
    _, out, _ = desk.test("--replay")
    assert "its schema changed (new: hour)" in " ".join(out.split())
    desk.app("day: str", "weekday: str")
    code, out, _ = desk.test("--replay", "--junit", "out.xml")
    said = " ".join(out.split())
    assert code == 1
    assert "its schema changed (gone: day; new: weekday)" in said
    assert "Task may-1 held in all 2 recorded attempts, and now in 0 of 2" in said
    failed = ElementTree.parse(desk.folder / "out.xml").getroot().iter("failure")
    assert len(some(failed)) == 1 + 3 + 12, "the recording, each limit, each task"


def test_a_limit_that_cannot_be_reached_names_the_number_needed(desk: Desk) -> None:
    desk.contract(limits={"pass_1": 0.9})
    code, _, err = desk.test()
    assert code == 2
    assert "pass_1 >= 0.9 cannot be reached with 12 tasks" in err
    assert "write more tasks, " in err
    desk.contract(limits={"tasks": {"may-7": {"pass_1": 0.5}}})
    code, _, err = desk.test()
    assert code == 2
    assert "may-7: pass_1 >= 0.5 cannot be reached with 2 samples" in err
    assert "raise `samples`, 6 in all" in err


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"limits": {}}, "limits is empty"),
        ({"limits": {"pass1": 0.3}}, "Did you mean 'pass_1'?"),
        ({"limits": {"tasks": {"may-77": 0.1}}}, "Did you mean 'may-7'?"),
        ({"limit": {"pass_1": 0.3}}, "did you mean 'limits'?"),
        ({"tasks": "task.jsonl"}, "Did you mean 'tasks.jsonl'?"),
        ({"settings": {"framework": "native"}, "framework": "native"}, "framework"),
        ({"split": "tests"}, "Did you mean 'test'?"),
    ],
)
def test_a_wrong_contract_is_refused(
    desk: Desk, fields: dict[str, Any], said: str
) -> None:
    desk.contract(**fields)
    code, _, err = desk.test()
    assert code == 2
    assert said in err


def test_what_is_missing_is_named(desk: Desk) -> None:
    code, _, err = desk.test("contact.yaml")
    assert code == 2
    assert "Did you mean 'contract.yaml'?" in err
    code, _, err = desk.test("--replay")
    assert code == 2
    assert "agentgym test CONTRACT --record" in err
    assert desk.test("--replay", "--record")[0] == 2
    (desk.folder / "contract.recording.jsonl").write_text('{"recording": 9}\n')
    code, _, err = desk.test("--replay")
    assert code == 2
    assert "is not a recording (its version is 9, not 2)" in err


def call(*messages: dict[str, Any], tools: Any = (), **fields: Any) -> ModelCall:
    return ModelCall(messages=list(messages), tools=list(tools), **fields)


def rollout(task: str, *calls: ModelCall) -> Trajectory:
    return Trajectory(rollout_id=task, scenario="s", task_id=task, steps=list(calls))


SYSTEM = {"role": "system", "content": "Help."}
USER = {"role": "user", "content": "Hello."}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "", "parameters": {}},
}


def recording(*calls: ModelCall) -> RecordedAnswers:
    return RecordedAnswers("x", {}, False, {"t": (1, 1)}, {"t": [list(calls)]})


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    asked = [RequestedCall(id="1", name="f", arguments="{}")]
    first = call(SYSTEM, USER, tools=[TOOL], tool_calls=asked, prompt_tokens=3)
    said = {"role": "assistant", "tool_calls": [asked[0].to_openai()]}
    more = call(SYSTEM, USER, said, tools=[TOOL], content="Bye.", agent="b")
    made = recording(first, more, call({"role": "user", "content": "x"}, agent="b"))
    made.save(tmp_path / "r.jsonl")
    again = RecordedAnswers.load(tmp_path / "r.jsonl")
    for old, new in zip(made.calls["t"][0], again.calls["t"][0], strict=True):
        assert (old.messages, old.tools) == (new.messages, new.tools)
        assert (old.content, old.tool_calls) == (new.content, new.tool_calls)
        assert old.token_counts == new.token_counts
    assert not changes(again, [rollout("t", *made.calls["t"][0])])


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (call({**SYSTEM, "content": "Do."}, USER), "the system prompt changed"),
        (call(SYSTEM, {**USER, "content": "?"}), "the request, or another message"),
        (call(SYSTEM, USER, tools=[TOOL]), "tool f: it is new"),
        (call(USER), "fewer system messages"),
    ],
)
def test_a_change_is_named(new: ModelCall, what: str) -> None:
    [change] = changes(recording(call(SYSTEM, USER)), [rollout("t", new)])
    assert change.text.startswith(what)
    assert change.is_request
    assert change.sentence.endswith("(1 task, as in t)")


def test_tasks_that_differ_are_named() -> None:
    made = [rollout("u", call(USER))]
    texts = [each.text for each in changes(recording(call(USER)), made)]
    assert texts == ["a recorded task is gone", "a task is not recorded"]


def test_a_contract_is_read_by_python_too(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("tasks: coding\nlimits: {pass_1: 0.5}\n")
    contract = read_contract(path)
    assert contract.measured_split == "test"
    assert contract.config(tmp_path).eval_samples == 4
    assert [limit.name for limit in contract.all_limits()] == ["pass_1 >= 0.5"]
    with pytest.raises(UsageError, match="saved agent"):
        Contract.create(
            tasks="coding", agent="mine", model="nano", limits={"pass_1": 0.5}
        ).config(tmp_path)
    with pytest.raises(AgentGymError, match="from 0 to 1"):
        list(Contract.create(tasks="coding", limits={"pass_1": 2}).all_limits())


@pytest.mark.slow
def test_a_contract_has_limits_with_faults(desk: Desk) -> None:
    limits = {"pass_1": 0.3, "with_faults": {"pass_1": 0.3}}
    desk.contract(
        **json.loads((desk.folder / "contract.yaml").read_text()) | {"limits": limits}
    )
    code, out, _ = desk.test()
    assert code == 1
    assert "with faults: pass_1 >= 0.3: no faults were set" in " ".join(out.split())
    code, out, _ = desk.test("--record", "--faults", "error=1")
    assert code == 1
    assert "with faults: The lower end of the interval of pass 1" in " ".join(
        out.split()
    )
    code, out, _ = desk.test("--replay", "--faults", "error=1", "--json")
    assert code == 1
    body = json.loads(out)
    assert not body["changes"]
    faulty = body["evaluation"]["variants"]["with faults"]
    assert faulty["pass_1"]["value"] == 0.0
    assert faulty["tool_reliability"]["value"] == 1.0
