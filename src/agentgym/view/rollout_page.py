"""The data of a rollout's page, as JSON values."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from operator import eq
from typing import Any

from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.rollout.store.rollout import FINAL_STATES, FIRST_ATTEMPT, Rollout
from agentgym.rollout.task_input import read_task
from agentgym.view.first_wrong import CallJudge


def rollout_page(
    rollout: Rollout, trajectory: Trajectory, judge: CallJudge
) -> dict[str, Any]:
    """Return a rollout's task, steps and reward, and a judgement of each tool call."""
    task = read_task(rollout.input)
    judged = judge.judge(rollout.input, trajectory)
    has_ended = rollout.status.state in FINAL_STATES
    last = rollout.status.last_attempt_id or FIRST_ATTEMPT
    return {
        "id": rollout.rollout_id,
        "has_ended": has_ended,
        "outcome": trajectory.status if has_ended else "unfinished",
        "reason": trajectory.reason if has_ended else None,
        "attempt": int(last) if last.isdecimal() else 0,
        "created_at": rollout.status.created_at,
        "duration_s": trajectory.duration_s,
        "group": trajectory.group,
        "step": rollout.metadata.get("step"),
        "is_train": rollout.is_train,
        "task": task.model_dump(mode="json"),
        "reward": trajectory.reward,
        "reward_parts": trajectory.reward_parts,
        "right_tool": trajectory.right_tool,
        "right_arguments": trajectory.right_arguments,
        "steps": _steps(trajectory),
        "tools": _tools(trajectory),
        "judgement": judged,
        "graph": speaker_graph([([c.agent for c in trajectory.model_calls], 1)]),
        "changed_files": trajectory.changed_files,
        "end_state": trajectory.end_state,
        "task_line": task_line(trajectory, task.model_dump(mode="json"), judged),
    }


def speaker_graph(
    conversations: Iterable[tuple[Sequence[str], int]],
) -> dict[str, Any]:
    """Return the roles of a team, and how often each spoke after another.

    A role speaks when it makes a model call. A conversation is the sequence in which
    roles spoke, and its number of rollouts.
    """
    roles, turns, rollouts = Counter[str](), Counter[tuple[str, str]](), 0
    for speakers, times in conversations:
        rollouts += times
        for role in speakers:
            roles[role] += times
        for pair in pairwise(speakers):
            turns[pair] += times
    return {
        "rollouts": rollouts,
        "roles": roles,
        "turns": [
            {"from": before, "to": after, "count": count}
            for (before, after), count in turns.most_common()
        ],
    }


def task_line(
    trajectory: Trajectory, task: Mapping[str, Any], judged: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the task as a line of a tasks file.

    The line expects the needed calls. If these are not known, it expects the calls
    that this rollout made without an error.
    """
    made = [call for call in trajectory.get_tool_calls() if call.outcome == "ok"]
    needed = [
        {"tool": need["tool"], "args": need["arguments"]}
        for need in judged["needed"] or ()
    ] or [{"tool": call.name, "args": call.arguments or {}} for call in made]
    for call in needed:
        answers = (
            each.result
            for each in made
            if (each.name, each.arguments) == (call["tool"], call["args"])
        )
        if (answer := next(answers, None)) is not None:
            call["answer"] = answer
    return {"instruction": task["instruction"], "expect": needed}


def _steps(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return the steps in order; a model call has only its new prompt messages."""
    found: list[dict[str, Any]] = []
    before: dict[str, list[dict[str, Any]]] = {}
    results = {call.id for call in trajectory.get_tool_calls() if call.id}
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            known = before.get(step.agent, [])
            shared = sum(takewhile(bool, map(eq, step.messages, known)))
            before[step.agent] = step.messages
            found.append(_model_call(step, step.messages[shared:], results))
        else:
            found.append(step.model_dump(mode="json"))
    return found


def _model_call(
    call: ModelCall, messages: Sequence[Mapping[str, Any]], results: set[str]
) -> dict[str, Any]:
    """Return a model call as JSON values, without messages that other steps show."""
    counts = call.token_counts
    new = [
        message
        for message in messages
        if message.get("role") != "assistant"
        and message.get("tool_call_id") not in results
    ]
    return {
        "type": "model_call",
        "agent": call.agent,
        "messages": new,
        "content": call.content,
        "tool_calls": [each.model_dump() for each in call.tool_calls],
        "finish_reason": call.finish_reason,
        "model_version": call.model_version,
        "latency_ms": call.latency_ms,
        "prompt_tokens": counts[0] if counts else None,
        "response_tokens": counts[1] if counts else None,
        "has_tokens": bool(call.response_ids),
    }


def _tools(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return names and descriptions of the offered tools."""
    offered = next((call.tools for call in trajectory.model_calls if call.tools), [])
    functions = (tool.get("function") or {} for tool in offered)
    return [
        {"name": each.get("name"), "description": each.get("description")}
        for each in functions
    ]
