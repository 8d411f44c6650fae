"""Convert trajectories to the formats of other tools.

- ``atif``: the Agent Trajectory Interchange Format, version 1.7 (RFC 0001 of Harbor):
  steps of the system, the user and the agent, with tool calls, their results, token
  ids and log-probabilities.
- ``openai``: chat messages for OpenAI's fine-tuning and most trainers. Each
  conversation of a team becomes one record.
- ``jsonl``: AgentGym's own record, which ``agentgym rollout --show`` reads.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import parse_arguments
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    ToolCall,
    Trajectory,
)
from agentgym.rollout.store.events import content_text
from agentgym.version import __version__

TrajectoryFormat = Literal["atif", "openai", "jsonl"]
ATIF = "ATIF-v1.7"


def records(made: Trajectory, form: TrajectoryFormat) -> list[dict[str, Any]]:
    """Convert a trajectory to the JSON objects of a format.

    The formats ``atif`` and ``jsonl`` give one object, and ``openai`` one per
    conversation. A trajectory without a model call gives no object in ``atif`` and
    ``openai``.
    """
    match form:
        case "atif":
            return list(_atif(made))
        case "openai":
            return list(_openai(made))
        case "jsonl":
            return [made.to_dict()]


def form_of(path: Path) -> TrajectoryFormat:
    """Return the format that a file's name implies, e.g.

    ``atif`` for ``x.atif.json``.
    """
    match path.suffixes[-2:-1]:
        case [".atif"]:
            return "atif"
        case [".openai"]:
            return "openai"
    return "jsonl"


def _openai(made: Trajectory) -> Iterator[dict[str, Any]]:
    by_agent: dict[str, list[ModelCall]] = {}
    for call in made.model_calls:
        by_agent.setdefault(call.agent, []).append(call)
    for agent, calls in by_agent.items():
        for call in _last_of_each(calls):
            said: dict[str, Any] = {"role": "assistant", "content": call.content}
            if call.tool_calls:
                said["tool_calls"] = [each.to_openai() for each in call.tool_calls]
            record: dict[str, Any] = {"messages": [*call.messages, said]}
            if call.tools:
                record["tools"] = call.tools
            yield record | {"metadata": {"agent": agent, **_about(made)}}


def _last_of_each(calls: list[ModelCall]) -> Iterator[ModelCall]:
    """Yield the last model call of each conversation."""
    for place, call in enumerate(calls):
        before = len(call.messages)
        if not any(
            len(later.messages) > before and later.messages[:before] == call.messages
            for later in calls[place + 1 :]
        ):
            yield call


def _atif(made: Trajectory) -> Iterator[dict[str, Any]]:
    steps = list(_steps(made))
    if not steps:
        return
    first = made.model_calls[0]
    agent: dict[str, Any] = {"name": made.scenario or "agent", "version": __version__}
    if first.tools:
        agent["tool_definitions"] = first.tools
    numbers = made.stats()
    totals: dict[str, Any] = {"total_steps": len(steps)}
    if not numbers.uncounted_calls:
        totals["total_prompt_tokens"] = numbers.prompt_tokens
        totals["total_completion_tokens"] = numbers.response_tokens
    yield {
        "schema_version": ATIF,
        "session_id": made.rollout_id,
        "trajectory_id": f"{made.rollout_id}/{made.attempt}",
        "agent": agent,
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, 1)],
        "final_metrics": totals,
        "extra": _about(made),
    }


def _steps(made: Trajectory) -> Iterator[dict[str, Any]]:
    """Yield ATIF steps: for each model call, its new messages, then the call itself."""
    known: dict[str, list[dict[str, Any]]] = {}
    results = _results(made)
    for place, call in enumerate(made.model_calls):
        before = known.get(call.agent, [])
        new = call.messages[len(before) :]
        if call.messages[: len(before)] != before:
            new = call.messages
        for message in new:
            role = message.get("role")
            if role in ("system", "developer", "user"):
                source = "user" if role == "user" else "system"
                text = content_text(message.get("content")) or ""
                yield {"source": source, "message": text, **_of_team(call)}
        known[call.agent] = call.messages
        yield _agent_step(call, results[place])


def _results(made: Trajectory) -> list[list[ToolCall]]:
    """Return, for each model call, the tool calls that ran before the next one."""
    found: list[list[ToolCall]] = []
    for step in made.steps:
        if isinstance(step, ModelCall):
            found.append([])
        elif found:
            found[-1].append(step)
    return found


def _agent_step(call: ModelCall, ran: list[ToolCall]) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", "message": call.content or ""}
    if call.tool_calls:
        step["tool_calls"] = [_call(each) for each in call.tool_calls]
    ids = {each.id for each in call.tool_calls}
    if ran:
        step["observation"] = {"results": [_result(each, ids) for each in ran]}
    metrics: dict[str, Any] = {}
    if counts := call.token_counts:
        metrics["prompt_tokens"], metrics["completion_tokens"] = counts
    if call.response_ids:
        metrics["prompt_token_ids"] = call.prompt_ids
        metrics["completion_token_ids"] = call.response_ids
        metrics["logprobs"] = call.logprobs
    if metrics:
        step["metrics"] = metrics
    return {**step, "llm_call_count": 1, **_of_team(call)}


def _call(asked: RequestedCall) -> dict[str, Any]:
    arguments = parse_arguments(asked.arguments)
    made = {"tool_call_id": asked.id, "function_name": asked.name}
    if arguments is None:  # the format allows only objects
        return {**made, "arguments": {}, "extra": {"malformed": asked.arguments}}
    return {**made, "arguments": arguments}


def _result(ran: ToolCall, ids: set[str]) -> dict[str, Any]:
    extra = {"tool": ran.name, "outcome": ran.outcome.value}
    made: dict[str, Any] = {"content": ran.result, "extra": extra}
    return {"source_call_id": ran.id, **made} if ran.id in ids else made


def _of_team(call: ModelCall) -> dict[str, Any]:
    return {} if call.agent == DEFAULT_AGENT else {"extra": {"agent": call.agent}}


def _about(made: Trajectory) -> dict[str, Any]:
    kept = made.model_dump(
        mode="json",
        include={
            *("rollout_id", "attempt", "scenario", "task_id", "family", "level"),
            *("group", "reward", "reward_parts", "success", "right_tool"),
            *("right_arguments", "status", "reason", "duration_s"),
        },
    )
    return {key: value for key, value in kept.items() if value not in (None, "", {})}
