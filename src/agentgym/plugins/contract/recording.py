"""RecordedAnswers: a model's answers in a file, and the changes since they were given.

Each line after the first is one rollout. A message, or a list of tools, is written
once, in the first line, and named by its hash.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from agentgym.core.files import digest
from agentgym.core.json_schema import properties
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import ModelCall, RequestedCall, Trajectory
from agentgym.errors import EngineError, NotFoundError, UsageError
from agentgym.evaluate.metrics import by_task
from agentgym.evaluate.result import Evaluation, write_text

VERSION = 2
_KEPT = ("agent", "content", "finish_reason")


@dataclass(frozen=True)
class RecordedAnswers:
    """The answers of a model to an agent's requests.

    Attributes:
        subject: Name of the recorded agent and model.
        settings: Settings of a saved agent, with which it can run without its weights.
        gives_forms: Whether the model answered in a form by a tool call; see Policy.
        held: For each task, numbers of successful and of scored attempts.
        calls: The model calls of each attempt, by task.
    """

    subject: str
    settings: Mapping[str, Any]
    gives_forms: bool
    held: Mapping[str, tuple[int, int]]
    calls: Mapping[str, Sequence[Sequence[ModelCall]]]

    @classmethod
    def of(
        cls,
        found: Evaluation,
        made: Sequence[Trajectory],
        settings: Mapping[str, Any],
    ) -> Self:
        """Return the answers in the attempts ``made`` of an evaluation."""
        held = {t.task_id: (t.successes, t.attempts) for t in found.metrics.by_task}
        calls = {t[0].task_id: [each.model_calls for each in t] for t in by_task(made)}
        return cls(found.subject, settings, found.endpoint is None, held, calls)

    def save(self, path: Path) -> None:
        """Write the file."""
        texts: dict[str, Any] = {}
        lines = [
            {"task": task, "calls": [_packed(call, texts) for call in calls]}
            for task, attempts in self.calls.items()
            for calls in attempts
        ]
        head = {
            "recording": VERSION,
            "subject": self.subject,
            "settings": dict(self.settings),
            "gives_forms": self.gives_forms,
            "held": dict(self.held),
            "texts": texts,
        }
        rows = (json.dumps(each, ensure_ascii=False) for each in [head, *lines])
        write_text(path, "\n".join(rows) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that :meth:`save` wrote."""
        if not path.is_file():
            beside = sorted(each.name for each in path.parent.glob("*.jsonl"))
            hint = "Make one with: agentgym test CONTRACT --record"
            raise NotFoundError("recording", str(path), beside, hint)
        try:
            text = path.read_text(encoding="utf-8")
            head, *lines = map(json.loads, text.splitlines())
            if (version := head.pop("recording")) != VERSION:
                raise ValueError(f"its version is {version}, not {VERSION}")
            texts = head.pop("texts")
            calls: defaultdict[str, list[list[ModelCall]]] = defaultdict(list)
            for line in lines:
                calls[line["task"]].append([_unpacked(c, texts) for c in line["calls"]])
            held = {task: (won, of) for task, (won, of) in head.pop("held").items()}
            return cls(**head, held=held, calls=dict(calls))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{path} is not a recording ({error}). Make it again with: agentgym "
                "test CONTRACT --record"
            ) from None


def _packed(call: ModelCall, texts: dict[str, Any]) -> dict[str, Any]:
    """Return a call for the file; add its messages and its tools to ``texts``."""

    def name(value: Any) -> str:
        key = digest([json.dumps(value, sort_keys=True)])[:12]
        texts[key] = value
        return key

    return {
        **{key: getattr(call, key) for key in _KEPT},
        "messages": [name(message) for message in call.messages],
        "tools": name(call.tools),
        "tool_calls": [each.to_openai() for each in call.tool_calls],
        "tokens": call.token_counts,
    }


def _unpacked(given: dict[str, Any], texts: Mapping[str, Any]) -> ModelCall:
    prompt, response = given["tokens"] or (None, None)
    return ModelCall.without_tokens(
        **{key: given[key] for key in _KEPT},
        messages=[texts[name] for name in given["messages"]],
        tools=texts[given["tools"]],
        tool_calls=[
            RequestedCall(id=each["id"], **each["function"])
            for each in given["tool_calls"]
        ],
        prompt_tokens=prompt,
        response_tokens=response,
    )


class RecordedPolicy(Policy):
    """Answers requests with the recorded answers of the same rollout and agent.

    A request that equals a recorded one gets its answer, any other request the next
    answer that is left.
    """

    model_name = "recorded"

    def __init__(self, recording: RecordedAnswers) -> None:
        self.gives_forms = recording.gives_forms
        self._left: dict[tuple[str, str], list[ModelCall]] = {}

    def expect(self, rollout_id: str, calls: Sequence[ModelCall]) -> None:
        """Take the answers to the requests of a rollout."""
        for call in calls:
            self._left.setdefault((rollout_id, call.agent), []).append(call)

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Return the recorded answer."""
        rollout_id = request.session.partition("/")[0]
        left = self._left.get((rollout_id, request.agent or DEFAULT_AGENT))
        if not left:
            raise EngineError("The recording has no further answer for this rollout.")
        same = (call for call in left if call.messages == request.messages)
        made = next(same, left[0])
        left.remove(made)
        prompt, response = made.token_counts or (0, 0)
        return ChatResult(
            prompt_ids=[0] * prompt,
            response_ids=[0] * response,
            logprobs=[0.0] * response,
            content=made.content,
            tool_calls=made.tool_calls,
            finish_reason=made.finish_reason,
            model_version=0,
        )


@dataclass(frozen=True, order=True)
class AgentChange:
    """A part of the agent that differs from the recorded version.

    Attributes:
        is_request: Whether the model would be asked something else, so that the
            recorded answers do not count. False for tool results, which the agent's own
            code computes.
    """

    text: str
    tasks: tuple[str, ...] = field(compare=False)
    is_request: bool = field(default=True, compare=False)

    @property
    def sentence(self) -> str:
        """The change, and in how many tasks it is."""
        count = len(self.tasks)
        return f"{self.text} ({count} task{'s' * (count != 1)}, as in {self.tasks[0]})"


def changes(
    recording: RecordedAnswers, made: Sequence[Trajectory]
) -> list[AgentChange]:
    """Compare the recorded requests with those of a replay; return the differences."""
    found: defaultdict[tuple[str, bool], set[str]] = defaultdict(set)
    replayed = by_task(made)
    for attempts in replayed:
        task = attempts[0].task_id
        before = recording.calls.get(task, ())
        if len(before) < len(attempts):
            what = "not recorded" if not before else "recorded with fewer samples"
            found[f"a task is {what}", True].add(task)
        for old, new in zip(before, attempts, strict=False):
            for what, is_request in _differences(old, new.model_calls):
                found[what, is_request].add(task)
    for task in recording.calls.keys() - {each[0].task_id for each in replayed}:
        found["a recorded task is gone", True].add(task)
    return sorted(
        AgentChange(text, tuple(sorted(tasks)), is_request)
        for (text, is_request), tasks in found.items()
    )


def _differences(
    old: Sequence[ModelCall], new: Sequence[ModelCall]
) -> Iterator[tuple[str, bool]]:
    for agent in {call.agent: None for call in (*old, *new)}:
        whose = "" if agent == DEFAULT_AGENT else f" of {agent}"
        mine = [[c for c in calls if c.agent == agent] for calls in (old, new)]
        for before, after in zip(*mine, strict=False):
            for what in _tools_changed(before.tools, after.tools):
                yield what, True
            for kind, is_request in _messages_changed(before.messages, after.messages):
                yield f"{kind}{whose * (kind == _PROMPT)}", is_request
        if len(mine[0]) != len(mine[1]):
            more = "fewer" if len(mine[1]) < len(mine[0]) else "more"
            yield f"the agent{whose} makes {more} model calls", True


def _tools_changed(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    if old == new:
        return
    before, after = (
        {each["function"]["name"]: each["function"] for each in tools}
        for tools in (old, new)
    )
    yield from (f"tool {name}: it is gone" for name in before.keys() - after.keys())
    yield from (f"tool {name}: it is new" for name in after.keys() - before.keys())
    for name in before.keys() & after.keys():
        was, now = before[name], after[name]
        if was.get("description") != now.get("description"):
            yield f"tool {name}: its description changed"
        if was.get("parameters") != now.get("parameters"):
            fields = (
                properties(was.get("parameters")),
                properties(now.get("parameters")),
            )
            yield f"tool {name}: its schema changed{_fields_changed(*fields)}"


def _fields_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    parts = {
        "gone": old.keys() - new.keys(),
        "new": new.keys() - old.keys(),
        "other": {n for n in old.keys() & new.keys() if old[n] != new[n]},
    }
    words = (f"{kind}: {', '.join(sorted(n))}" for kind, n in parts.items() if n)
    text = "; ".join(words)
    return f" ({text})" if text else ""


_PROMPT = "the system prompt changed"
_KINDS = {
    "system": _PROMPT,
    "developer": _PROMPT,
    "user": "the request, or another message of the user, changed",
    "assistant": "an earlier answer is sent in another form",
}


def _messages_changed(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, bool]]:
    if old == new:
        return
    names = {
        call.get("id"): call["function"]["name"]
        for message in (*old, *new)
        for call in message.get("tool_calls") or ()
    }
    counts = Counter(str(message.get("role")) for message in old)
    counts.subtract(str(message.get("role")) for message in new)
    for role, count in counts.items():
        if count:
            yield f"{'fewer' if count > 0 else 'more'} {role} messages", True
    for before, after in zip(old, new, strict=False):
        role = str(before.get("role"))
        if before != after and role == after.get("role"):
            if role == "tool":
                name = names.get(before.get("tool_call_id"), before.get("name"))
                yield f"tool {name}: its result changed", False
            else:
                yield _KINDS.get(role, f"a message of {role} changed"), True
