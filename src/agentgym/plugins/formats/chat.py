"""Chat messages: the fine-tuning format of OpenAI and of Hugging Face's trainers."""

from collections.abc import Iterator
from typing import Any

from agentgym.core.trajectory import ModelCall, Trajectory


def chat_records(made: Trajectory) -> list[dict[str, Any]]:
    """Return each conversation of a trajectory as a record of ``messages``."""
    return list(_conversations(made))


def _conversations(made: Trajectory) -> Iterator[dict[str, Any]]:
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
            yield record | {"metadata": {"agent": agent, **about(made)}}


def _last_of_each(calls: list[ModelCall]) -> Iterator[ModelCall]:
    """Yield the last model call of each conversation."""
    for place, call in enumerate(calls):
        before = len(call.messages)
        if not any(
            len(later.messages) > before and later.messages[:before] == call.messages
            for later in calls[place + 1 :]
        ):
            yield call


def about(made: Trajectory) -> dict[str, Any]:
    """Return the facts about a rollout besides its steps, e.g. its reward."""
    kept = made.model_dump(
        mode="json",
        include={
            *("rollout_id", "attempt", "scenario", "task_id", "family", "level"),
            *("group", "reward", "reward_parts", "success", "right_tool"),
            *("right_arguments", "status", "reason", "duration_s"),
        },
    )
    return {key: value for key, value in kept.items() if value not in (None, "", {})}
