"""Tasks files from logs of every kind, and from what is none."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentgym.core.tools import as_tools
from agentgym.errors import UsageError
from agentgym.plugins.logs import FromLogs, from_logs
from agentgym.scenarios.tool_tasks.task_file import read_task_lines
from tests.plugins.logs import harbour
from tests.plugins.logs.harbour import ASKED, FIND, LINE, function_call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def read(path: Path, *values: Any, **options: Any) -> FromLogs:
    """Read a file of JSON Lines; of a text as it is."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in values]
    path.write_text("\n".join(lines) + "\n")
    return from_logs(path, **options)


def lines_of(found: FromLogs) -> list[dict[str, Any]]:
    texts = found.text.splitlines()
    return [json.loads(text) for text in texts if not text.startswith("#")]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("LangSmith", harbour.langsmith()),
        ("LangSmith", [{"runs": harbour.langsmith()}]),
        ("LangSmith", [json.dumps(harbour.langsmith(), indent=2)]),
        ("Langfuse", harbour.langfuse()),
        ("Langfuse", [harbour.langfuse_trace()]),
        ("OpenTelemetry", [harbour.genai()]),
        ("OpenTelemetry", [harbour.genai(structured=True)]),
        ("OpenTelemetry", [harbour.events()]),
        ("OpenTelemetry", harbour.openinference()),
        ("OpenTelemetry", [harbour.openllmetry()]),
    ],
)
def test_each_kind_of_export_shows_the_same_task(
    log: Path, kind: str, values: list[Any]
) -> None:
    found = read(log, *values)
    assert lines_of(found) == [LINE]
    assert (found.kinds, found.tasks, found.answers) == ((kind,), 1, 2)
    assert not found.skipped
    assert not found.calls


def test_child_runs_of_a_tree_count(log: Path) -> None:
    *children, root = harbour.langsmith()
    for run in (root, *children):
        del run["trace_id"]
    assert lines_of(read(log, {**root, "child_runs": children})) == [LINE]


def test_roots_alone_show_the_state_of_their_graph(log: Path) -> None:
    state = [
        {"type": "human", "content": ASKED},
        {"type": "ai", "content": "", "tool_calls": [harbour.lc_call(1, "x", FIND)]},
        {"type": "tool", "content": "Error: no boat", "tool_call_id": "call_1"},
        {"type": "ai", "content": "", "tool_calls": [harbour.lc_call(2, "y", FIND)]},
        {"type": "tool", "content": "free", "tool_call_id": "call_2"},
    ]
    root = {"id": "r", "run_type": "chain", "inputs": {"messages": state[:1]}}
    found = read(log, {**root, "outputs": {"messages": state}})
    [line] = lines_of(found)
    assert line["expect"] == [{"tool": "y", "args": FIND, "answer": "free"}]
    assert found.calls == {"x: it failed": 1}


def test_tools_alone_make_a_task_of_what_the_root_was_asked(log: Path) -> None:
    def run(number: int, kind: str, **more: Any) -> dict[str, Any]:
        order = {"id": str(number), "trace_id": "t", "start_time": f"2026-05-0{number}"}
        return {**order, "run_type": kind, "name": "find_boat", **more}

    failed = {"inputs": FIND, "outputs": None, "error": "KeyError()"}
    found = read(
        log,
        run(3, "tool", inputs={"input": json.dumps(FIND)}, outputs={"output": "yes"}),
        run(1, "chain", inputs={"question": ASKED}, outputs={"answer": "Yes."}),
        run(2, "tool", **{**failed, "inputs": {**FIND, "day": "3 May"}}),
    )
    assert lines_of(found) == [
        {
            "instruction": ASKED,
            "expect": [{"tool": "find_boat", "args": FIND, "answer": "yes"}],
        }
    ]
    assert found.calls == {"find_boat: it failed": 1}


def test_what_langchain_traces_is_read(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: dict[str, dict[str, Any]] = {}

    class Kept(Client):
        def create_run(  # type: ignore[override]
            self, name: str, inputs: Any, run_type: Any, **more: Any
        ) -> None:
            named = {"name": name, "inputs": inputs, "run_type": run_type}
            runs[str(more["id"])] = {**named, **more}

        def update_run(self, run_id: Any, **more: Any) -> None:  # type: ignore[override]
            runs[str(run_id)].update(more)

    @tool
    def find_boat(boat: str, day: str) -> dict[str, Any]:
        """Say whether a boat is free on a day."""
        return {"free": day == FIND["day"]}

    class Model(GenericFakeChatModel):
        def bind_tools(self, *tools: Any, **options: Any) -> Any:
            return self

    call = {"name": "find_boat", "args": FIND, "id": "c1"}
    replies = [AIMessage("", tool_calls=[call]), AIMessage("It is free.")]  # type: ignore[list-item]
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    client = Kept(
        api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False, info={}
    )
    tracer = LangChainTracer(client=client)
    agent: Any = create_agent(Model(messages=iter(replies)), [find_boat])
    agent.invoke({"messages": [("user", ASKED)]}, config={"callbacks": [tracer]})
    tracer.wait_for_futures()
    kept = [json.loads(json.dumps(run, default=_as_langsmith)) for run in runs.values()]
    assert {run["run_type"] for run in kept} == {"chain", "llm", "tool"}
    expect = [{"tool": "find_boat", "args": FIND, "answer": '{"free": true}'}]
    assert lines_of(read(log, *kept)) == [{"instruction": ASKED, "expect": expect}]


def _as_langsmith(value: Any) -> Any:
    from langsmith._internal._serde import dumps_json

    return json.loads(dumps_json(value))


def test_what_the_sdk_of_opentelemetry_prints_is_read(log: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("harbour")
    calls = [function_call(1, "find_boat", FIND)]
    message = {"role": "assistant", "tool_calls": calls}
    with tracer.start_as_current_span("desk"):
        with tracer.start_as_current_span("chat") as chat:
            chat.add_event("gen_ai.user.message", {"content": ASKED})
            chat.add_event("gen_ai.choice", {"message": json.dumps(message)})
        with tracer.start_as_current_span("execute_tool find_boat") as run:
            run.set_attribute("gen_ai.operation.name", "execute_tool")
            run.set_attribute("gen_ai.tool.call.arguments", json.dumps(FIND))
            run.set_attribute("gen_ai.tool.call.result", "free")
    spans = [span.to_json(indent=None) for span in exporter.get_finished_spans()]
    expect = [{"tool": "find_boat", "args": FIND, "answer": "free"}]
    assert lines_of(read(log, *spans)) == [{"instruction": ASKED, "expect": expect}]


def test_only_the_first_request_counts_and_each_once(log: Path) -> None:
    def call(number: int) -> dict[str, Any]:
        made = function_call(0, "find_boat", {**FIND, "day": str(number)})
        return {"role": "assistant", "tool_calls": [made]}

    user, more = ({"role": "user", "content": said} for said in (ASKED, "And then?"))
    first = {"messages": [user, call(1), call(1), call(2), more, call(3)]}
    found = read(log, first, {"messages": [user, call(4)]}, [more, call(5)])
    one, two = lines_of(found)
    assert [each["args"]["day"] for each in one["expect"]] == ["1", "1", "2"]
    assert two["instruction"] == "And then?"
    assert found.skipped == {"the same request came before": 1}


def conversation(asked: str, call: Any, result: Any) -> list[dict[str, Any]]:
    """Return a request, a call and its result, as parts of messages."""
    return [
        {"role": "user", "content": [{"text": asked}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def test_messages_are_read_in_every_spelling(log: Path) -> None:
    texts = [{"type": "text", "text": "free"}]
    anthropic = conversation(
        ASKED,
        {"type": "tool_use", "id": "u1", "name": "find_boat", "input": FIND},
        {"type": "tool_result", "tool_use_id": "u1", "content": texts},
    )
    anthropic[1]["content"].insert(0, {"type": "thinking", "thinking": "Hm."})
    bedrock = conversation(
        f"{ASKED} 2",
        {"toolUse": {"toolUseId": "u1", "name": "find_boat", "input": FIND}},
        {"toolResult": {"toolUseId": "u1", "content": [{"text": "free"}]}},
    )
    calls = [harbour.lc_call(1, "find_boat", FIND)]
    older = [
        {"type": "human", "data": {"content": f"{ASKED} 3"}},
        {"type": "ai", "data": {"content": "", "tool_calls": calls}},
        {"type": "tool", "data": {"content": "free", "tool_call_id": "call_1"}},
    ]
    found = read(log, *({"messages": each} for each in (anthropic, bedrock, older)))
    expect = [{"tool": "find_boat", "args": FIND, "answer": "free"}]
    assert [line["expect"] for line in lines_of(found)] == [expect] * 3


def test_calls_that_the_tools_do_not_take_are_left_out(log: Path) -> None:
    def find_boat(boat: str, day: str) -> str:
        """Find a boat."""
        return boat

    def hold_boat(name: str) -> str:
        """Hold a boat."""
        return name

    for tools, why in (
        ([find_boat], "hold_boat: no tool of yours has this name"),
        ([find_boat, hold_boat], "hold_boat: its arguments do not fit the tool"),
    ):
        found = read(log, harbour.genai(), tools=as_tools(tools, "TOOLS"))
        [line] = lines_of(found)
        assert line["expect"] == LINE["expect"][:1]
        assert found.calls == {why: 1}


def test_keys_do_not_reach_the_tasks_file(log: Path) -> None:
    key = "sk-proj-" + "a1B2" * 10
    other = "ghp_" + "x" * 36
    text = json.dumps(harbour.genai()).replace("Ruth Okafor", key)
    found = read(log, text.replace("held, ref", f"held {other} {key}"))
    assert key not in found.text
    assert other not in found.text
    assert found.secrets == 2
    [line] = lines_of(found)
    assert line["instruction"].endswith("hold it for SECRET-1.")
    assert line["expect"][1]["args"]["name"] == "SECRET-1"
    assert line["expect"][1]["answer"] == "held SECRET-2 SECRET-1 H-88"


def test_what_is_broken_is_left_out_and_counted(log: Path) -> None:
    spans = harbour.openinference()
    broken = {**spans[0], "attributes": {"llm.output_messages.0.message": 7}}
    other = {**broken, "context": {"trace_id": "0xd4", "span_id": "0x1"}}
    found = read(
        log, *spans, other, '{"cut off', '{"level": "info", "msg": "hello"}', ""
    )
    assert lines_of(found) == [LINE]
    [why, *_] = found.skipped
    assert why.startswith("it cannot be read, as the first is line 6 is not JSON")
    assert found.skipped[why] == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", r"line 1 is \[\], no object of a log"),
        ("7", "line 1 is 7, no object"),
        ('{"messages": "hello"}', "keys 'messages', which is no log that is known"),
        ('{"traceId": "1", "type": "GENERATION"}', "no request of a user is in it"),
        ('{"data": [{"traceID": "1", "operationName": "x"}]}', "'operationName'"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no tool was called"),
        ('{"messages": [{"role": "narrator", "content": "a"}]}', "role 'narrator'"),
        ('{"resourceSpans": []}', "it is empty"),
        ('{"run_type": "llm", "inputs": 7, "outputs": [[]]}', "is not a message"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"messages":["a",{"type":"ai","tool_calls":[{"name":"x","args":7}]}]}',
            "x: its arguments are no JSON object",
        ),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
            "the request holds more than text",
        ),
    ],
)
def test_what_shows_no_task_is_refused(log: Path, text: str, told: str) -> None:
    log.write_text(text)
    with pytest.raises(UsageError, match=told):
        from_logs(log)


@pytest.mark.slow
def test_mutilated_exports_are_left_out_or_refused(log: Path) -> None:
    """Every value of every export in turn is replaced by something else."""
    for export in (harbour.langsmith(), harbour.genai(), harbour.openinference()):
        whole = json.loads(json.dumps(export))
        for place, key in list(_places(whole)):
            kept = place[key]
            for odd in (None, 7, "x", [], {}, [7], {"role": 1}):
                place[key] = odd
                log.write_text(json.dumps(whole))
                with suppress(UsageError):
                    assert lines_of(from_logs(log))
            place[key] = kept


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


@pytest.mark.parametrize("as_text", [False, True])
def test_tools_beside_messages_become_the_lines_own(
    tmp_path: Path, as_text: bool
) -> None:
    def row(city: str, **schema: Any) -> dict[str, Any]:
        name = f"weather_in_{city.lower()}"
        properties = {"day": schema or {"type": "integer"}}
        parameters = {"type": "object", "properties": properties, "required": ["day"]}
        function = {"name": name, "description": "Tell.", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        day = int.from_bytes(city.encode()) % 89
        called = {"name": name, "arguments": json.dumps({"day": day})}
        return {
            "messages": [
                {"role": "user", "content": f"How is {city} on day {day}?"},
                {"role": "assistant", "tool_calls": [{"id": "1", "function": called}]},
                {"role": "tool", "tool_call_id": "1", "content": "wet"},
                {"role": "assistant", "content": "Wet."},
            ],
            "tools": json.dumps(tools) if as_text else tools,
        }

    cities = "ABCDEFGHIJKL"
    rows = [*map(row, cities), row("Q", type="int"), row("R", type="string")]
    log = tmp_path / "data.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    made = from_logs(log)
    assert made.tasks == len(cities)
    assert made.calls == {"weather_in_r: its arguments do not fit the tool": 1}
    assert any("'int' is not valid" in why for why in made.skipped)
    file = tmp_path / "tasks.jsonl"
    file.write_text(made.text)
    for line, city in zip(
        read_task_lines(file, {}, checked=False), cities, strict=True
    ):
        name = f"weather_in_{city.lower()}"
        assert [*line.tools] == [need.tool for need in line.expect] == [name]


def asked_and(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Show 7."}, *messages]}


SHOWN = {"tool": "show", "args": {"n": 7}, "answer": "two chairs"}
CALLED = {"toolCallId": "x", "toolName": "show"}
FIVE = {"type": "text", "value": "two chairs"}


def old_call(arguments: str, answer: str) -> list[dict[str, Any]]:
    """Return OpenAI's messages from before calls had ids."""
    call = {"name": "show", "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "show", "content": answer},
    ]


def vercel(call: dict[str, Any], result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a call with Vercel's AI SDK."""
    made = {"type": "tool-call", **CALLED, **call}
    answered = {"type": "tool-result", **CALLED, **result}
    return [
        {"role": "assistant", "content": [made]},
        {"role": "tool", "content": [answered]},
    ]


def interface() -> dict[str, Any]:
    """Return a message as Vercel's user interface keeps it."""
    run = {"input": {"n": 7}, "output": "two chairs", "state": "output-available"}
    parts = [
        {"type": "step-start"},
        {"type": "tool-show", "toolCallId": "x", **run},
        {"type": "text", "text": "It is here."},
    ]
    return {"role": "assistant", "content": "It is here.", "parts": parts}


@pytest.mark.parametrize(
    "messages",
    [
        [*old_call("{}", "none"), *old_call('{"n": 7}', "two chairs")],
        vercel({"input": {"n": 7}}, {"output": FIVE}),
        vercel({"args": {"n": 7}}, {"result": "two chairs"}),
        [interface()],
    ],
    ids=["function_call", "Vercel 5", "Vercel 4", "Vercel's interface"],
)
def test_results_are_those_of_their_calls(
    log: Path, messages: list[dict[str, Any]]
) -> None:
    found = read(log, asked_and(*messages))
    assert lines_of(found)[0]["expect"][-1] == SHOWN
    assert (found.skipped.total(), found.calls.total()) == (0, 0)


def test_a_failed_call_of_vercel_is_left_out(log: Path) -> None:
    failed = {"output": {"type": "error-text", "value": "no order"}}
    with pytest.raises(UsageError, match="show: it failed"):
        read(log, asked_and(*vercel({"input": {"n": 7}}, failed)))


def test_a_part_that_is_not_known_is_named(log: Path) -> None:
    odd = {"role": "assistant", "content": [{"type": "invocation", "of": "show"}]}
    with pytest.raises(UsageError, match="parts that are not known: invocation"):
        read(log, asked_and(odd))
    found = read(log, asked_and(odd, *old_call("{}", "none")))
    assert found.calls == {"a part that is not known: invocation": 1}


def gemini(n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a second request of `generateContent`, and the answer to it."""

    def call(name: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, "args": {"order": n}}}

    shown = {"name": "show_order", "response": {"result": "two chairs"}}
    contents = [
        {"role": "user", "parts": [{"text": f"Show and drop order {n}."}]},
        {
            "role": "model",
            "parts": [{"text": "hm", "thought": True}, call("show_order")],
        },
        {"role": "user", "parts": [{"functionResponse": shown}]},
    ]
    schema = {"type": "OBJECT", "properties": {"order": {"type": "INTEGER"}}}
    tools = [
        {"name": name, "description": "It does.", "parameters": schema}
        for name in ("show_order", "drop_order")
    ]
    asked = {"contents": contents, "tools": [{"functionDeclarations": tools}]}
    said = {"role": "model", "parts": [call("drop_order")]}
    return asked, {"candidates": [{"content": said, "finishReason": "STOP"}]}


@pytest.mark.parametrize("is_snake_case", [False, True])
def test_requests_and_answers_of_google_are_read(
    log: Path, is_snake_case: bool
) -> None:
    pairs = [gemini(n) for n in (1, 2, 3)]
    wrapped = {"request": pairs[0][0], "response": pairs[0][1]}
    merged = {**pairs[1][0], **pairs[1][1]}
    streamed = {"full_request": json.dumps(pairs[2][0]), "full_response": [pairs[2][1]]}
    values = [json.dumps(each) for each in (wrapped, merged, streamed)]
    if is_snake_case:
        for name in ("functionCall", "functionResponse", "functionDeclarations"):
            snake = name.replace("C", "_c").replace("R", "_r").replace("D", "_d")
            values = [each.replace(name, snake) for each in values]
    found = lines_of(read(log, *values))
    assert [line["instruction"] for line in found] == [
        f"Show and drop order {n}." for n in (1, 2, 3)
    ]
    for n, line in enumerate(found, 1):
        args = {"order": n}
        assert line["expect"] == [
            {"tool": "show_order", "args": args, "answer": "two chairs"},
            {"tool": "drop_order", "args": args},
        ]
        names = [tool["function"]["name"] for tool in line["tools"]]
        assert names == ["show_order", "drop_order"]


def test_the_answer_of_a_logged_request_counts(log: Path) -> None:
    call = function_call(1, "show_order", {"order": 7})
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    asked = {"messages": [{"role": "user", "content": "Show order 7."}]}
    answered = {"choices": [{"index": 0, "message": said}]}
    [line] = lines_of(read(log, {"request": asked, "response": answered}))
    assert line["expect"] == [{"tool": "show_order", "args": {"order": 7}}]


def test_an_error_of_google_is_a_failed_call(log: Path) -> None:
    asked, answer = gemini(1)
    asked["contents"][2]["parts"][0]["functionResponse"]["response"] = {"error": "no"}
    found = read(log, {**asked, **answer})
    assert found.calls == {"show_order: it failed": 1}
