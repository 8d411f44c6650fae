"""ATIF: trajectories as steps of the system, the user and the agent.

The Agent Trajectory Interchange Format is RFC 0001 of Harbor; this is version 1.7, with
tool calls, their results, token ids and log-probabilities.
"""

from collections.abc import Iterator
from typing import Any

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import parse_arguments
from agentgym.core.trajectory import (
    ModelCall,
    RequestedCall,
    ToolCall,
    Trajectory,
)
from agentgym.plugins.formats.chat import about
from agentgym.rollout.store.records import content_text
from agentgym.version import __version__

ATIF = "ATIF-v1.7"


def atif_records(made: Trajectory) -> list[dict[str, Any]]:
    """Return a trajectory as one ATIF object; none without a model call."""
    steps = list(_steps(made))
    if not steps:
        return []
    first = made.model_calls[0]
    agent: dict[str, Any] = {"name": made.scenario or "agent", "version": __version__}
    if first.tools:
        agent["tool_definitions"] = first.tools
    numbers = made.stats()
    totals: dict[str, Any] = {"total_steps": len(steps)}
    if not numbers.uncounted_calls:
        totals["total_prompt_tokens"] = numbers.prompt_tokens
        totals["total_completion_tokens"] = numbers.response_tokens
    found = {
        "schema_version": ATIF,
        "session_id": made.rollout_id,
        "trajectory_id": f"{made.rollout_id}/{made.attempt}",
        "agent": agent,
        "steps": [{"step_id": n, **step} for n, step in enumerate(steps, 1)],
        "final_metrics": totals,
        "extra": about(made),
    }
    return [found]


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
