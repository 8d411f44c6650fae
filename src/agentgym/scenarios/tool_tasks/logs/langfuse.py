"""Read observations of Langfuse, as its API, its UI or its blob storage exports them.

An observation has ``id``, ``traceId``, ``parentObservationId``, ``type``
(``GENERATION`` is a model call, ``TOOL`` a tool, ``SPAN`` anything), ``name``,
``startTime``, ``input``, ``output`` and ``level`` (api.reference.langfuse.com). A trace
may list its observations as ``observations``. Some exports spell keys as ``trace_id``,
and have inputs and outputs as JSON texts.
"""

from typing import Any

from agentgym.scenarios.tool_tasks.logs.langsmith import trace_of
from agentgym.scenarios.tool_tasks.logs.message import from_json
from agentgym.scenarios.tool_tasks.logs.trace import Trace

_KINDS = {
    "GENERATION": "llm",
    "TOOL": "tool",
    "SPAN": "chain",
    "AGENT": "chain",
    "CHAIN": "chain",
    "EVENT": "other",
    "RETRIEVER": "other",
    "EVALUATOR": "other",
    "EMBEDDING": "other",
    "GUARDRAIL": "other",
}


def is_observation(value: dict[str, Any]) -> bool:
    """Return whether an object is an observation, or a trace with observations."""
    if isinstance(value.get("observations"), list):
        return True
    is_of_trace = "traceId" in value or "trace_id" in value
    return is_of_trace and str(value.get("type")).upper() in _KINDS


class Observations:
    """A collection of Langfuse's observations, grouped into traces.

    Args:
        problems: A list to which messages about unreadable observations are added.
    """

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._by_trace: dict[str, list[dict[str, Any]]] = {}

    def add(self, value: dict[str, Any], where: str, trace: str = "") -> None:
        """Add an observation, or a trace with its observations.

        Args:
            value: The observation or trace.
            where: Place in the file, used as the id of the trace if no id is given.
            trace: Id of the trace that contains the observation, if known.
        """
        own = _of(value, "traceId") or trace or value.get("id") or where
        listed = value.get("observations")
        if not isinstance(listed, list):
            self._by_trace.setdefault(str(own), []).append(value)
            return
        root = {**value, "type": "CHAIN", "startTime": value.get("timestamp") or ""}
        self._by_trace.setdefault(str(own), []).append(root)
        for each in listed:
            if isinstance(each, dict):
                self.add(each, where, str(own))

    def traces(self) -> list[Trace]:
        """Return the traces, in the order in which they were added."""
        return [self._trace(each) for each in self._by_trace.values()]

    def _trace(self, observations: list[dict[str, Any]]) -> Trace:
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
        return trace_of(runs, self._problems, of="Langfuse")


def _of(value: dict[str, Any], key: str) -> Any:
    """Return the value of a key in camel case, or of its spelling in snake case."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in key)
    return value.get(key, value.get(snake))


def _run(value: dict[str, Any]) -> dict[str, Any]:
    """Convert an observation to a run in the format of LangSmith."""
    kind = _KINDS.get(str(value.get("type")).upper(), "other")
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
