"""Read runs of LangSmith, and observations of Langfuse.

A run has ``id``, ``trace_id``, ``run_type`` (``llm``, ``tool``, ``chain``, …),
``inputs``, ``outputs``, ``error`` and ``dotted_order``, which sorts a trace by
execution (docs.langchain.com/langsmith/run-data-format). Its children are separate
entries, or in its ``child_runs``. LangChain's tracer stores a model's input as
``inputs.messages`` (a batch of serialized messages), a model's output as
``outputs.generations[0][0].message``, and a tool's answer as ``outputs.output``.

An observation has the same content under other names; it is converted to a run.
"""

import ast
from collections.abc import Iterator
from typing import Any

from agentgym.plugins.logs.message import (
    UNREADABLE,
    LoggedCall,
    LoggedMessage,
    Result,
    from_json,
    read_arguments,
    read_message,
    read_messages,
    read_result,
)
from agentgym.plugins.logs.trace import ToolRun, Trace

_ASKED = ("input", "question", "query", "prompt", "request", "text")
_SAID = ("messages", "message", "output", "choices", "generations")


def is_run(value: dict[str, Any]) -> bool:
    """Return whether an object is a LangSmith run, or an example of a dataset."""
    # Examples have inputs and outputs, as runs have.
    if isinstance(value.get("run_type"), str):
        return True
    return isinstance(value.get("inputs"), dict) and "outputs" in value


def runs_in(
    run: dict[str, Any], where: str, trace: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a run and its children, each with the id of its trace."""
    own = run.get("trace_id") or trace or run.get("id") or run.get("run_id")
    key = str(own or where)
    yield key, run
    children = run.get("child_runs")
    for child in children if isinstance(children, list) else []:
        if isinstance(child, dict):
            yield from runs_in(child, where, key)


def trace_of(
    runs: list[dict[str, Any]], problems: list[str], of: str = "LangSmith"
) -> Trace:
    """Convert the runs of one trace to a `Trace`."""
    keys = ("dotted_order", "start_time")
    key = next((k for k in keys if all(run.get(k) for run in runs)), None)
    unique = {str(run.get("id") or run.get("run_id") or id(run)): run for run in runs}
    ordered = list(unique.values())
    if key is not None:
        ordered.sort(key=lambda run: str(run[key]))
    trace = Trace()
    chains = []
    for run in ordered:
        try:
            kind = run.get("run_type", "chain")
            if kind == "tool":
                trace.runs.append(_tool(run))
            elif kind == "llm":
                trace.conversations.append(_conversation(run))
            elif kind == "chain":
                chains.append(run)
                trace.asked = trace.asked or _asked(run)
        except UNREADABLE as error:
            problems.append(f"a run of {of}, {run.get('name')!r}: {error}")
    if not any(trace.conversations):
        for run in chains:  # exports that only have root runs
            try:
                messages = _conversation(run)
            except UNREADABLE:
                continue  # a chain's inputs and outputs may be anything
            if any(message.role == "user" for message in messages):
                trace.conversations = [messages]
                break
    return trace


def _conversation(run: dict[str, Any]) -> list[LoggedMessage]:
    """Return the input and output of a model's or a chain's run as messages."""
    given = run.get("inputs")
    given = given.get("messages") if isinstance(given, dict) else given
    said = _said(run.get("outputs"))
    if any(message.role == "user" for message in said):
        return said  # a graph's state: all of it
    return [*(read_messages(given) if given else []), *said]


def _said(outputs: Any) -> list[LoggedMessage]:
    while isinstance(outputs, list) and outputs and isinstance(outputs[0], list):
        outputs = outputs[0]
    if isinstance(outputs, dict) and "role" not in outputs:
        for key in _SAID:
            inner = outputs.get(key)
            if key in ("choices", "generations"):
                inner = inner[:1] if isinstance(inner, list) else None
                while inner and isinstance(inner[0], list):
                    inner = inner[0][:1]
            if key == "generations" and inner and "message" not in inner[0]:
                return []  # a text model without messages
            if isinstance(inner, dict | list) and inner:
                return read_messages(inner)
        if "kwargs" not in outputs:
            return []
    return [] if outputs is None else [read_message(outputs)]


def _tool(run: dict[str, Any]) -> ToolRun:
    inputs, outputs = run.get("inputs"), run.get("outputs")
    if isinstance(inputs, dict) and list(inputs) == ["input"]:
        inner = inputs["input"]  # LangChain's older runs: str() of a dict
        wording = _literal(inner) if isinstance(inner, str) else inner
        inputs = wording if isinstance(wording, dict) else inputs
    name = run.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("it has no name")
    output = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
    identity, text, failed = "", read_result(output), bool(run.get("error"))
    if isinstance(output, dict) and ("kwargs" in output or "tool_call_id" in output):
        [result] = read_message(output).results
        identity, text, failed = result.id, result.text, failed or result.failed
    answered = output not in (None, {}) or failed
    answer = Result(identity, text, failed) if answered else None
    return ToolRun(LoggedCall(identity, name, read_arguments(inputs)), answer)


def _literal(text: str) -> Any:
    found = from_json(text)
    if isinstance(found, str):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
    return found


def _asked(run: dict[str, Any]) -> str:
    inputs = run.get("inputs")
    if not isinstance(inputs, dict):
        return ""
    named = [inputs.get(key) for key in _ASKED]
    texts = [text for text in (*named, *inputs.values()) if isinstance(text, str)]
    return texts[0] if texts and (any(named) or len(inputs) == 1) else ""


_TYPES = {
    "GENERATION": "llm",
    "TOOL": "tool",
    "SPAN": "chain",
    "AGENT": "chain",
    "CHAIN": "chain",
    **dict.fromkeys(("EVENT", "RETRIEVER", "EVALUATOR", "EMBEDDING"), "other"),
    "GUARDRAIL": "other",
}
"""LangSmith's type of a run, by the type of an observation."""


def is_observation(value: dict[str, Any]) -> bool:
    """Return whether it is Langfuse's observation, or a trace with observations."""
    if isinstance(value.get("observations"), list):
        return True
    is_of_trace = "traceId" in value or "trace_id" in value
    return is_of_trace and str(value.get("type")).upper() in _TYPES


def observations_in(
    value: dict[str, Any], where: str, trace: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an observation, or those of a trace, each with the id of its trace."""
    key = str(_of(value, "traceId") or trace or value.get("id") or where)
    listed = value.get("observations")
    if not isinstance(listed, list):
        yield key, value
        return
    yield key, {**value, "type": "CHAIN", "startTime": value.get("timestamp") or ""}
    for each in listed:
        if isinstance(each, dict):
            yield from observations_in(each, where, key)


def trace_of_observations(
    observations: list[dict[str, Any]], problems: list[str]
) -> Trace:
    """Convert the observations of one trace to a `Trace`."""
    runs = [_run(each) for each in observations]
    models = [run for run in runs if run["run_type"] == "llm"]
    called = {
        call.name
        for messages in trace_of(models, []).conversations
        for message in messages
        for call in message.calls
    }
    for run in runs:  # older SDKs have no type for tools
        if run["run_type"] == "chain" and run["name"] in called:
            run["run_type"] = "tool"
    return trace_of(runs, problems, of="Langfuse")


def _of(value: dict[str, Any], key: str) -> Any:
    """Return the value of a key in camel case, or of its spelling in snake case."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
    return value.get(key, value.get(snake))


def _run(value: dict[str, Any]) -> dict[str, Any]:
    """Convert an observation to a run in the format of LangSmith."""
    kind = _TYPES.get(str(value.get("type")).upper(), "other")
    given = from_json(value.get("input"))
    if kind == "llm" and isinstance(given, list | str):
        given = {"messages": given}
    if kind == "chain" and isinstance(given, str):
        given = {"input": given}
    return {
        "id": value.get("id"),
        "run_type": kind,
        "name": value.get("name"),
        "start_time": _of(value, "startTime"),
        "inputs": given,
        "outputs": from_json(value.get("output")),
        "error": str(value.get("level")).upper() == "ERROR",
    }
