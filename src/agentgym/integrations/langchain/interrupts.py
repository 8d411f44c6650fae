"""Resume a graph that waits at a breakpoint, for an approval or for an answer."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentgym.integrations.episode import current_episode

_INTERRUPTED = "__interrupt__"
_REJECTED = "This call is not allowed."


async def resumption(
    graph: Any,
    config: Mapping[str, Any],
    state: Any,
    answer: Callable[[Any], Any] | None = None,
) -> tuple[Any, ...]:
    """Return the input that resumes a graph, as a 1-tuple; empty if the graph ended.

    ``config`` (with the thread id) and ``state`` are those of the last run. Graphs
    without a checkpointer cannot wait. ``answer`` is the user's function for the value
    of an interrupt.
    """
    from langgraph.types import Command

    found = state.get(_INTERRUPTED, ()) if isinstance(state, Mapping) else ()
    if found:
        return (Command(resume={i.id: await _answer(i, answer) for i in found}),)
    if graph.checkpointer and (await graph.aget_state(config)).next:
        return (None,)  # continue after a breakpoint
    return ()


async def _answer(interrupt: Any, answer: Callable[[Any], Any] | None) -> Any:
    """Return the answer to one interrupt.

    A tool call that waits for approval is approved, so that the model's own call takes
    effect. The scenario's user answers other questions.
    """
    question = interrupt.value
    if answer is not None:
        given = answer(question)
        return await given if inspect.isawaitable(given) else given
    if isinstance(question, Mapping) and "action_requests" in question:
        configs = {c["action_name"]: c for c in question.get("review_configs", ())}
        actions = question["action_requests"]
        allowed = [configs.get(each["name"], {}) for each in actions]
        return {
            "decisions": [
                await _decision(config.get("allowed_decisions", ()), action)
                for config, action in zip(allowed, actions, strict=True)
            ]
        }
    if isinstance(question, Mapping) and question.get("type") == "tool_approval":
        kinds = list(_constants(getattr(interrupt, "response_schema", None)))
        return await _decision(kinds, question)
    requests = question if isinstance(question, list) else [question]
    is_inbox = (isinstance(r, Mapping) and "action_request" in r for r in requests)
    if requests and all(is_inbox):
        replies = [await _reply(request) for request in requests]
        return replies if isinstance(question, list) else replies[0]
    return current_episode().answer_to(str(question))


async def _reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reply to a request in the form of LangChain's Agent Inbox."""
    allowed, action = request.get("config") or {}, request["action_request"]
    if allowed.get("allow_accept", not allowed):
        return {"type": "accept", "args": None}
    if allowed.get("allow_respond"):
        return {"type": "response", "args": await _spoken(request, action["action"])}
    if allowed.get("allow_edit"):
        return {"type": "edit", "args": action}
    return {"type": "ignore", "args": None}


async def _spoken(request: Mapping[str, Any], name: str) -> str:
    """Return a person's text, for a tool that is not run or for a question."""
    episode, action = current_episode(), request.get("action_request", request)
    if name in episode.tools:
        called = action.get("tool_call_id")
        return await episode.use_tool(name, dict(action["args"]), call_id=called)
    return episode.answer_to(str(request.get("description", request)))


async def _decision(
    allowed: Sequence[str], action: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the decision on a tool call that waits for a person.

    It approves the call if possible. ``action`` is the tool call. ``allowed`` contains
    the kinds of decision that the graph accepts; if it is empty, all are accepted.
    """
    name, arguments = action["name"], dict(action["args"])
    if not allowed or "approve" in allowed:
        return {"type": "approve"}
    if "edit" in allowed:
        edited = {"name": name, "args": arguments}
        return {"type": "edit", "edited_action": edited}
    if "respond" in allowed:  # a person answers instead of the tool
        return {"type": "respond", "message": await _spoken(action, name)}
    return {"type": "reject", "message": _REJECTED}


def _constants(schema: Any) -> Iterator[str]:
    """Yield the values of the keyword ``const`` in a JSON schema."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "const":
                yield str(value)
            yield from _constants(value)
    elif isinstance(schema, Sequence) and not isinstance(schema, str):
        for value in schema:
            yield from _constants(value)
