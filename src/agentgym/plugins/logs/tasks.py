"""Create a tasks file from a log file of any known format."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentgym.core.json_schema import with_parts
from agentgym.core.tools import Tool
from agentgym.errors import UsageError
from agentgym.plugins.formats.dataset import is_dataset, rows
from agentgym.plugins.logs.langsmith import (
    is_observation,
    is_run,
    observations_in,
    runs_in,
    trace_of,
    trace_of_observations,
)
from agentgym.plugins.logs.message import (
    UNREADABLE,
    LoggedMessage,
    from_json,
    read_message,
    read_messages,
    shown,
)
from agentgym.plugins.logs.opentelemetry import is_export, spans_in, trace_of_spans
from agentgym.plugins.logs.reviews import is_review, reviews_in, trace_of_reviews
from agentgym.plugins.logs.trace import LeftOutError, Trace, read_task
from agentgym.scenarios.tool_tasks.lines import read_text
from agentgym.security.redaction import Redactor


def is_atif(value: Mapping[str, Any]) -> bool:
    """Return whether an object is a trajectory in the ATIF format."""
    version = value.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF-")


def read_atif(value: Mapping[str, Any], where: str) -> Iterator[tuple[str, Trace]]:
    """Yield the trace of an ATIF trajectory, with the conversations of subagents."""
    every = [value, *(value.get("subagent_trajectories") or ())]
    agent = value.get("agent")
    tools = agent.get("tool_definitions") if isinstance(agent, dict) else None
    yield where, Trace([_steps(each) for each in every], tools=tools or ())


def _steps(value: Mapping[str, Any]) -> list[LoggedMessage]:
    messages: list[LoggedMessage] = []
    steps = value.get("steps")
    if not isinstance(steps, list) or not all(isinstance(s, dict) for s in steps):
        raise ValueError("its steps are not a list of objects")
    for step in steps:
        if missing := sorted({"source", "message"}.difference(step)):
            raise ValueError(f"a step has no {' and no '.join(missing)}")
        if step["source"] != "agent":
            said = {"role": step["source"], "content": step["message"]}
            messages.append(read_message(said))
            continue
        calls = [
            {
                "id": call.get("tool_call_id", ""),
                "name": call["function_name"],
                "arguments": call["arguments"],
            }
            for call in step.get("tool_calls") or ()
        ]
        said = {"role": "assistant", "content": step["message"], "tool_calls": calls}
        messages.append(read_message(said))
        for result in (step.get("observation") or {}).get("results") or ():
            answer = {
                "role": "tool",
                "tool_call_id": result.get("source_call_id") or "",
                "content": result.get("content") or "",
            }
            messages.append(read_message(answer))
    return messages


class Secrets:
    """Replaces equal secrets by equal names such as ``SECRET-1``."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._redactor = Redactor.of_environment()

    @property
    def count(self) -> int:
        """Number of different secrets found."""
        return len(self._names)

    def hidden(self, value: Any) -> Any:
        """Return a JSON value in which each secret is replaced by its name."""
        if isinstance(value, str):
            return self._redactor.replaced(value, self._name)
        if isinstance(value, list):
            return [self.hidden(each) for each in value]
        if isinstance(value, dict):
            return {self.hidden(k): self.hidden(v) for k, v in value.items()}
        return value

    def _name(self, found: str, mask: str) -> str:
        return self._names.setdefault(found, f"SECRET-{len(self._names) + 1}")


_HEAD = """\
# From {file} ({kinds}): {tasks} requests, with the calls that were made for them.
# What users said stands here as they said it: their names, addresses, numbers.
# What an agent did is not what it should have done: read every line, and correct it.
"""
_KNOWN = (
    'Known are JSON Lines of {"messages": […]}, OpenAI-shaped or LangChain\'s, and of '
    '{"contents": […]}, Google\'s, also with a "request" around; runs of '
    "LangSmith, which have a run_type; observations of Langfuse, which have a traceId "
    "and a type; OTLP JSON of OpenTelemetry, which has resourceSpans; ATIF, which has "
    "a schema_version; and reviews, which have action_requests and decisions."
)
_CONTAINERS = ("runs", "data", "spans", "traces", "examples", "items")
_EXCHANGES = (("request", "response"), ("full_request", "full_response"))
_DECLARED = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parameters", "parametersJsonSchema", "parameters_json_schema")
"""Keys of Google's ``generateContent``."""
_MOST_NESTED = 4
_MOST_KEYS = 6


@dataclass
class FromLogs:
    """A tasks file created from logs.

    Attributes:
        kinds: Formats of the entries in the log file, e.g. ``LangSmith``.
        answers: Number of expected calls whose answer is in the log.
        skipped: Number of traces from which no task was made, by reason. Unreadable
            entries of the log are counted too.
        calls: Number of calls that were left out of the tasks, by reason.
        secrets: Number of different API keys and tokens that were replaced.
    """

    text: str = ""
    kinds: tuple[str, ...] = ()
    tasks: int = 0
    answers: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    secrets: int = 0


def from_logs(
    path: Path, tools: Sequence[Tool] | None = None, *, reviewed: bool = False
) -> FromLogs:
    """Create a tasks file from a log file, with users' requests and the calls for them.

    Each conversation or trace gives one task: its first request, the calls until the
    user's next message, and the tools' answers. Failed calls and repeated requests are
    left out. Texts that look like an API key or a token are replaced.

    If a reviewer edited a call, the edited call is expected. If a reviewer rejected a
    call, its tool is forbidden, unless another call of the tool is expected.
    """
    made = FromLogs()
    traces = _traces(path, made)
    specs = None if tools is None else {tool.spec.name: tool.spec for tool in tools}
    secrets = Secrets()
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    for trace in traces:
        try:
            line = read_task(trace, specs, made.calls)
        except LeftOutError as error:
            made.skipped[str(error)] += 1
            continue
        if reviewed and not trace.decisions:
            made.skipped["no reviewer decided on its calls"] += 1
            continue
        if line["instruction"] in seen:
            made.skipped["the same request came before"] += 1
            continue
        seen.add(line["instruction"])
        made.decisions += trace.decisions
        found.append(secrets.hidden(line))
    if not found:
        reasons = [*_counted(made.skipped), *_counted(made.calls)]
        why = "; ".join(reasons) or "it is empty"
        raise UsageError(f"{path} has no request with a tool call: {why}.")
    made.tasks = len(found)
    made.answers = sum("answer" in call for line in found for call in line["expect"])
    made.secrets = secrets.count
    body = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found)
    kinds = " and ".join(made.kinds)
    made.text = _HEAD.format(file=path.name, kinds=kinds, tasks=len(found)) + body
    return made


def _counted(counted: Mapping[str, int]) -> list[str]:
    return [f"{count}: {why}" for why, count in counted.items()]


def _traces(path: Path, made: FromLogs) -> list[Trace]:
    """Return the traces in a log file; set ``made.kinds``, count unreadable entries."""
    problems: list[str] = []
    parts: dict[str, dict[str, list[Any]]] = {}
    for place, value in _values(path, problems):
        for where, entry in _entries(place, value, 0):
            found = _format_of(entry)
            if found is None:
                problems.append(f"{where} is {_seen(entry)}")
                continue
            by_trace = parts.setdefault(found.name, {})
            try:
                for key, part in found.parts(entry, where):
                    by_trace.setdefault(key, []).append(part)
            except UNREADABLE as error:
                problems.append(f"{where}: {error}")
    if not parts and problems:
        raise UsageError(f"{path}, {problems[0]}. {_KNOWN}")
    traces = [
        each.trace(of_one, problems)
        for each in _FORMATS
        for of_one in parts.get(each.name, {}).values()
    ]
    made.kinds = tuple(sorted(parts))
    if problems:
        why = f"it cannot be read, as the first is {problems[0]}"
        made.skipped[why] = len(problems)
    return traces


def _is_conversation(entry: Any) -> bool:
    """Return whether it is a list of messages, or a request with messages."""
    if isinstance(entry, list):
        roles = [_is_object(each) and "role" in each for each in entry]
        return bool(roles) and all(roles)
    return _is_object(entry) and isinstance(_messages(_sides(entry)[0]), list)


def _conversation(entry: Any, where: str) -> Iterator[tuple[str, Trace]]:
    messages, tools = _exchanged(entry)
    yield where, Trace([read_messages(messages)], tools=tools)


def _first(traces: list[Trace], problems: list[str]) -> Trace:
    return traces[0]


class _Format(NamedTuple):
    """A format of log entries.

    Attributes:
        matches: Whether an entry, an object, has this format.
        parts: Yields the parts of traces in an entry, each with a key that is the same
            for all parts of a trace. Gets the place of the entry for messages.
        trace: Converts the parts of a trace; adds sentences on unreadable parts to a
            list.
    """

    name: str
    matches: Callable[[Any], bool]
    parts: Callable[[Any, str], Iterator[tuple[str, Any]]]
    trace: Callable[[list[Any], list[str]], Trace]


_FORMATS: Final = (
    _Format("LangSmith", is_run, runs_in, trace_of),
    _Format("Langfuse", is_observation, observations_in, trace_of_observations),
    _Format("OpenTelemetry", is_export, spans_in, trace_of_spans),
    _Format("reviews", is_review, reviews_in, trace_of_reviews),
    _Format("ATIF", is_atif, read_atif, _first),
    _Format("messages", _is_conversation, _conversation, _first),
)


def _format_of(entry: Any) -> _Format | None:
    if _is_object(entry):
        return next((each for each in _FORMATS if each.matches(entry)), None)
    return _FORMATS[-1] if _is_conversation(entry) else None


def _exchanged(entry: Any) -> tuple[Any, Sequence[Any]]:
    """Return the messages of a log entry, the answer's last, and the offered tools."""
    if not _is_object(entry):
        return entry, ()
    request, answers = _sides(entry)
    messages = _messages(request)
    if not isinstance(messages, list):
        return messages, _offered(request)
    last = messages[-1] if messages else {}
    if _is_object(last) and last.get("role") not in ("assistant", "model"):
        choices = [_chosen(answer) for answer in answers]
        messages = [*messages, *(each for each in choices if each)]
    return messages, _offered(request)


def _sides(entry: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return a request to a model and its answers, also if both are in one object."""
    for request, response in _EXCHANGES:
        if _is_object(asked := from_json(entry.get(request))):
            said = from_json(entry.get(response))
            return asked, said if isinstance(said, list) else [said]
    return entry, [entry]


def _messages(request: Mapping[str, Any]) -> Any:
    """Return the messages of a request; Google's are its ``contents``."""
    found = request.get("messages")
    return request.get("contents") if found is None else found


def _chosen(answer: Any) -> Any:
    """Return the first message of a model's answer; None if there is none."""
    if not _is_object(answer):
        return None
    choices = answer.get("choices") or answer.get("candidates")
    first: Any = choices[0] if isinstance(choices, list) and choices else {}
    return (first.get("message") or first.get("content")) if _is_object(first) else None


def _offered(entry: Mapping[str, Any]) -> Sequence[Any]:
    """Return the tools in a log entry, a list or its JSON text; () without any."""
    found = from_json(entry.get("tools") or ())
    if not isinstance(found, list):
        return ()
    tools: list[Any] = []
    for tool in found:
        declared = [tool.get(k) for k in _DECLARED] if _is_object(tool) else []
        lists = [each for each in declared if isinstance(each, list)]
        tools += map(_of_google, lists[0]) if lists else [tool]
    return tools


def _of_google(tool: Any) -> Any:
    """Return a function that Google's request declares as one of OpenAI's."""
    schema: Any = next((tool[k] for k in _SCHEMAS if _is_object(tool.get(k))), {})
    return {**tool, "parameters": _lowered(schema)}


def _lowered(schema: Any) -> Any:
    """Return a schema whose types are written in small letters."""
    made = with_parts(schema, _lowered)
    if _is_object(made) and isinstance(made.get("type"), str):
        made["type"] = made["type"].lower()
    return made


def _values(path: Path, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield position and value of each line; a JSON file has only one value."""
    if is_dataset(path):
        yield from ((f"record {n}", row) for n, row in enumerate(rows(path), 1))
        return
    text = read_text(path)
    try:
        value = json.loads(text)
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply to be a log.") from None
    except ValueError:
        pass
    else:
        yield "line 1", value
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield f"line {number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            wording = error.msg if isinstance(error, json.JSONDecodeError) else error
            problems.append(f"line {number} is not JSON: {wording}")


def _entries(where: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield the position and content of each log entry in a value."""
    inner = None
    if depth < _MOST_NESTED and _format_of(value) is None:
        inner = value
        if _is_object(value):
            inside = map(value.get, _CONTAINERS)
            inner = next((each for each in inside if isinstance(each, list)), None)
    if isinstance(inner, list) and inner:
        for number, each in enumerate(inner, 1):
            yield from _entries(f"{where}, entry {number}", each, depth + 1)
    else:
        yield where, value


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _seen(value: Any) -> str:
    if not _is_object(value):
        return f"{shown(value)}, no object of a log"
    keys = ", ".join(map(repr, list(value)[:_MOST_KEYS])) or "no keys"
    more = ", …" if len(value) > _MOST_KEYS else ""
    return f"an object with the keys {keys}{more}, which is no log that is known"
