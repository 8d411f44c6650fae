"""Exports of a harbour's desk, written by hand after the tools' documentation."""

import json
from typing import Any

ASKED = "Is the Gannet free on 3 May? If so, hold it for Ruth Okafor."
FIND = {"boat": "Gannet", "day": "2026-05-03"}
HOLD = {"boat": "Gannet", "name": "Ruth Okafor", "hours": 4}
FREE = '{"free": true, "berth": 12}'
LINE = {
    "instruction": ASKED,
    "expect": [
        {"tool": "find_boat", "args": FIND, "answer": FREE},
        {"tool": "hold_boat", "args": HOLD, "answer": "held, ref H-88"},
    ],
}
"""What each of these exports shows."""

SOURCE = '''
def find_boat(boat: str, day: str) -> dict[str, bool]:
    """Say whether a boat is free on a day."""
    return {"free": True}


def hold_boat(boat: str, name: str, hours: int = 4) -> str:
    """Hold a boat for somebody."""
    return "held"


TOOLS = [find_boat, hold_boat]
'''


def lc(kind: str, **kwargs: Any) -> dict[str, Any]:
    """Return a message as LangChain's ``dumpd`` writes it."""
    where = ["langchain", "schema", "messages", kind]
    return {"lc": 1, "type": "constructor", "id": where, "kwargs": kwargs}


def lc_call(number: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "args": args, "id": f"call_{number}", "type": "tool_call"}


def langsmith(trace: str = "t1") -> list[dict[str, Any]]:
    """Return the runs of one trace, newest first as ``Client.list_runs``."""
    human = lc("HumanMessage", content=ASKED, type="human")
    system = lc("SystemMessage", content="You run a harbour's desk.", type="system")
    asks = lc(
        "AIMessage", content="", tool_calls=[lc_call(1, "find_boat", FIND)], id="r1"
    )
    told = lc(
        "ToolMessage", content=FREE, tool_call_id="call_1", name="find_boat", id="m1"
    )
    then = lc("AIMessage", content="", tool_calls=[lc_call(2, "hold_boat", HOLD)])
    last = {
        "content": "held, ref H-88",
        "type": "tool",
        "name": "hold_boat",
        "tool_call_id": "call_2",
        "status": "success",
    }

    def run(number: int, kind: str, name: str, inputs: Any, outputs: Any) -> Any:
        return {
            "id": f"{trace}-{number}",
            "trace_id": trace,
            "name": name,
            "run_type": kind,
            "parent_run_id": None if not number else f"{trace}-0",
            "dotted_order": f"20260501T08000{number}Z{trace}",
            "start_time": f"2026-05-01T08:00:0{number}",
            "inputs": inputs,
            "outputs": outputs,
            "error": None,
            "extra": {"metadata": {"ls_provider": "openai"}},
        }

    def said(message: Any) -> dict[str, Any]:
        generation = {"text": "", "type": "ChatGeneration", "message": message}
        return {"generations": [[generation]], "llm_output": None, "type": "LLMResult"}

    runs = [
        run(0, "chain", "LangGraph", {"messages": [["user", ASKED]]}, {"messages": []}),
        run(1, "llm", "ChatOpenAI", {"messages": [[system, human]]}, said(asks)),
        run(2, "tool", "find_boat", FIND, {"output": told}),
        run(
            3,
            "llm",
            "ChatOpenAI",
            {"messages": [[system, human, asks, told]]},
            said(then),
        ),
        run(4, "tool", "hold_boat", {"input": str(HOLD)}, {"output": last}),
        run(
            5,
            "llm",
            "ChatOpenAI",
            {
                "messages": [
                    [system, human, asks, told, then, lc("ToolMessage", **last)]
                ]
            },
            said(lc("AIMessage", content="It is held.")),
        ),
    ]
    return runs[::-1]


def any_value(value: Any) -> dict[str, Any]:
    """Return a value as OTLP's JSON has it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [any_value(each) for each in value]}}
        case dict():
            pairs = [{"key": k, "value": any_value(v)} for k, v in value.items()]
            return {"kvlistValue": {"values": pairs}}
    return {"stringValue": value}


def attributes(**values: Any) -> list[dict[str, Any]]:
    return [{"key": k, "value": any_value(v)} for k, v in values.items()]


def span(number: int, name: str, *, trace: str = "a1", **values: Any) -> dict[str, Any]:
    return {
        "traceId": trace * 16,
        "spanId": f"{number:016x}",
        "parentSpanId": "" if not number else f"{0:016x}",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(1_777_622_400_000_000_000 + number),
        "attributes": attributes(**values),
        "status": {},
    }


def otlp(spans: list[dict[str, Any]], *, key: str = "resourceSpans") -> dict[str, Any]:
    inner = "scopeSpans" if key == "resourceSpans" else "scopeLogs"
    last = "spans" if key == "resourceSpans" else "logRecords"
    scope = {"scope": {"name": "harbour"}, last: spans}
    resource = {"attributes": attributes(**{"service.name": "desk"})}
    return {key: [{"resource": resource, inner: [scope]}]}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "content": said}


def genai(*, structured: bool = False) -> dict[str, Any]:
    """Return an export after OpenTelemetry's GenAI conventions, tools as spans too."""

    def request(number: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "tool_call",
            "id": f"c{number}",
            "name": name,
            "arguments": args,
        }

    def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    def kept(messages: list[dict[str, Any]]) -> Any:
        return messages if structured else json.dumps(messages)

    told = {"type": "tool_call_response", "id": "c1", "response": json.loads(FREE)}
    history = [message("user", text(ASKED))]
    first = message("assistant", request(1, "find_boat", FIND))
    after = [*history, first, message("tool", told)]
    second = message("assistant", request(2, "hold_boat", HOLD))
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    spans = [
        span(0, "invoke_agent desk", **{"gen_ai.operation.name": "invoke_agent"}),
        span(
            1,
            "chat m",
            **chat,
            **{"gen_ai.input.messages": kept(history)},
            **{
                "gen_ai.output.messages": kept(
                    [{**first, "finish_reason": "tool_call"}]
                )
            },
        ),
        span(
            3,
            "chat m",
            **chat,
            **{"gen_ai.input.messages": kept(after)},
            **{"gen_ai.output.messages": kept([second])},
        ),
        span(
            4,
            "execute_tool hold_boat",
            **{
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "hold_boat",
                "gen_ai.tool.call.id": "c2",
                "gen_ai.tool.call.arguments": json.dumps(HOLD),
                "gen_ai.tool.call.result": "held, ref H-88",
            },
        ),
    ]
    return otlp(spans[::-1])


def function_call(number: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(args)}
    return {"id": f"c{number}", "type": "function", "function": function}


def events() -> dict[str, Any]:
    """Return log records after the GenAI conventions up to 1.36, an event a message."""

    def record(
        place: int, span: int, name: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "timeUnixNano": str(1_777_622_400_000_000_000 + place),
            "eventName": name,
            "body": any_value(body),
            "traceId": "b2" * 16,
            "spanId": f"{span:016x}",
        }

    def choice(*calls: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "tool_calls": list(calls)}
        return {"index": 0, "finish_reason": "tool_calls", "message": message}

    first, second = (
        function_call(1, "find_boat", FIND),
        function_call(2, "hold_boat", HOLD),
    )
    user, tool = {"content": ASKED}, {"content": FREE, "id": "c1"}
    end = {"index": 0, "finish_reason": "stop", "message": {"content": "Held."}}
    records = [
        record(1, 1, "gen_ai.user.message", user),
        record(2, 1, "gen_ai.choice", choice(first)),
        record(3, 2, "gen_ai.user.message", user),
        record(4, 2, "gen_ai.assistant.message", {"tool_calls": [first]}),
        record(5, 2, "gen_ai.tool.message", tool),
        record(6, 2, "gen_ai.choice", choice(second)),
        record(7, 3, "gen_ai.user.message", user),
        record(8, 3, "gen_ai.assistant.message", {"tool_calls": [first]}),
        record(9, 3, "gen_ai.tool.message", tool),
        record(10, 3, "gen_ai.assistant.message", {"tool_calls": [second]}),
        record(11, 3, "gen_ai.tool.message", {"content": "held, ref H-88", "id": "c2"}),
        record(12, 3, "gen_ai.choice", end),
    ]
    return otlp(records, key="resourceLogs")


def openinference() -> list[dict[str, Any]]:
    """Return OpenInference's spans as an SDK prints them, without calls' ids."""

    def called(prefix: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        start = f"{prefix}.message"
        function = f"{start}.tool_calls.0.tool_call.function"
        return {
            f"{start}.role": "assistant",
            f"{function}.name": name,
            f"{function}.arguments": json.dumps(args),
        }

    def printed(number: int, name: str, **values: Any) -> dict[str, Any]:
        return {
            "name": name,
            "context": {"trace_id": "0xc3", "span_id": f"0x{number}"},
            "parent_id": None,
            "start_time": f"2026-05-01T08:00:0{number}.000000Z",
            "status": {"status_code": "OK"},
            "attributes": values,
            "events": [],
        }

    given, out = "llm.input_messages", "llm.output_messages"
    asked = {
        f"{given}.0.message.role": "user",
        f"{given}.0.message.contents.0.message_content.type": "text",
        f"{given}.0.message.contents.0.message_content.text": ASKED,
    }
    tool = {"openinference.span.kind": "TOOL", "input.mime_type": "application/json"}
    return [
        printed(1, "ChatCompletion", **asked, **called(f"{out}.0", "find_boat", FIND)),
        printed(
            2,
            "find_boat",
            **tool,
            **{"input.value": json.dumps(FIND), "output.value": FREE},
            **{"tool.name": "find_boat"},
        ),
        printed(
            3,
            "ChatCompletion",
            **asked,
            **called(f"{given}.1", "find_boat", FIND),
            **{f"{given}.2.message.role": "tool", f"{given}.2.message.content": FREE},
            **called(f"{out}.0", "hold_boat", HOLD),
        ),
        printed(
            4,
            "hold_boat",
            **tool,
            **{"input.value": json.dumps(HOLD), "output.value": "held, ref H-88"},
        ),
    ]


def openllmetry() -> dict[str, Any]:
    """Return an export after OpenLLMetry's names."""

    def called(prefix: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        start = f"{prefix}.tool_calls.0"
        named = {f"{start}.id": name, f"{start}.name": name}
        return {f"{prefix}.role": "assistant", **named} | {
            f"{start}.arguments": json.dumps(args)
        }

    prompt, end = "gen_ai.prompt", "gen_ai.completion.0"
    values = {f"{prompt}.0.role": "user", f"{prompt}.0.content": ASKED}
    values |= called(f"{prompt}.1", "find_boat", FIND)
    values |= {f"{prompt}.2.role": "tool", f"{prompt}.2.content": FREE}
    values |= {f"{prompt}.2.tool_call_id": "find_boat"}
    values |= called(f"{prompt}.3", "hold_boat", HOLD)
    values |= {f"{prompt}.4.role": "tool", f"{prompt}.4.content": "held, ref H-88"}
    values |= {f"{prompt}.4.tool_call_id": "hold_boat"}
    values |= {f"{end}.role": "assistant", f"{end}.content": "It is held."}
    return otlp([span(1, "openai.chat", **values)])


def langfuse(tools: str = "TOOL") -> list[dict[str, Any]]:
    """Return the observations of one trace, as Langfuse's API lists them."""

    def made(kind: str, name: str, second: int, given: Any, said: Any) -> Any:
        return {
            "id": f"o{second}",
            "traceId": "t1",
            "parentObservationId": None if name == "desk" else "o0",
            "type": kind,
            "name": name,
            "startTime": f"2026-05-01T10:00:0{second}.000Z",
            "input": given,
            "output": said,
            "level": "DEFAULT",
        }

    asked = [
        {"role": "system", "content": "You run a harbour's desk."},
        {"role": "user", "content": ASKED},
    ]
    finds: dict[str, Any] = {"role": "assistant", "content": None}
    finds |= {"tool_calls": [function_call(1, "find_boat", FIND)]}
    told = {"role": "tool", "tool_call_id": "c1", "content": FREE}
    holds: dict[str, Any] = {"role": "assistant", "content": ""}
    holds |= {"tool_calls": [function_call(2, "hold_boat", HOLD)]}
    return [
        made("GENERATION", "gpt", 3, {"messages": [*asked, finds, told]}, holds),
        made(tools, "hold_boat", 4, json.dumps(HOLD), "held, ref H-88"),
        made(tools, "find_boat", 2, FIND, json.loads(FREE)),
        made("GENERATION", "gpt", 1, asked, finds),
        made("SPAN", "desk", 0, {"question": ASKED}, "Held."),
    ]


def langfuse_trace() -> dict[str, Any]:
    """Return the same trace as Langfuse's interface exports it, keys in snake case."""
    names = {"traceId": "trace_id", "startTime": "start_time"}
    return {
        "id": "t1",
        "name": "desk",
        "timestamp": "2026-05-01T10:00:00.000Z",
        "input": ASKED,
        "output": "Held.",
        "observations": [
            {names.get(key, key): value for key, value in each.items()}
            for each in langfuse("SPAN")
        ],
    }
