"""Summaries: compute the row of a rollout from its record and its events."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson

from agentgym.core.trajectory import NO_REASON
from agentgym.rollout.store.events import ATTEMPT_FAILED, MODEL_REQUEST
from agentgym.rollout.store.rollout import FIRST_ATTEMPT, RolloutState

COLUMNS = (
    "rollout_id TEXT UNIQUE",
    "place INTEGER",
    "split TEXT",
    "phase TEXT",
    "held_out TEXT",
    "step INTEGER",
    "family TEXT",
    "level INTEGER",
    "task_id TEXT",
    "task_group TEXT",
    "outcome TEXT",
    "reason TEXT",
    "reward REAL",
    "right_tool REAL",
    "right_arguments REAL",
    "model_calls INTEGER",
    "tokens INTEGER",
    "tool_calls INTEGER",
    "errors INTEGER",
    "seconds REAL",
    "rules TEXT",
    "roles TEXT",
    "instruction TEXT",
    "speakers TEXT",
    "turns",
    "words TEXT",
)
"""Columns of a summary, in the order of a row; the first is its key.

The last three are not shown. ``speakers``: the roles of all model calls, in order.
``turns``: each role's numbers of model calls and sampled tokens, for a separate table.
``words``: the text to search, for a separate index.
"""
NAMES = tuple(column.partition(" ")[0] for column in COLUMNS)

TRAIN = "train"
_MEASURED = re.compile(r"(before|warmed|after)_(.+)-t\d+$")
_CHECKED = re.compile(r"(v|c|best-|first-)\d+-t\d+$")
_CHECKS = {
    "v": "validation",
    "c": "confirmation",
    "best-": "choice",
    "first-": "choice",
}
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S*\w|\d+")
"""Matches paths, quoted values and numbers: these vary between violations of a rule."""
_MOST_WORDS = 2000
_MOST_INSTRUCTION = 300
_END = "\n"


@dataclass
class Attempt:
    """The events of a rollout's newest attempt, as read so far."""

    name: str = FIRST_ATTEMPT
    model_calls: int = 0
    tools: list[str] = field(default_factory=list)
    errors: int = 0
    rules: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    reward: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None

    def read(self, kind: str, data: str | bytes | None) -> None:
        """Add one event to the summary.

        ``data`` is the event's JSON; for a model call, it may be None.
        """
        if kind == MODEL_REQUEST:
            self.model_calls += 1
        elif kind == "tool_call":
            self._read_call(orjson.loads(data or b"{}"))
        elif kind == "reward":
            found = orjson.loads(data or b"{}")
            if "score" in found:
                self.reward = found
        elif kind == ATTEMPT_FAILED:
            self.failure = orjson.loads(data or b"{}").get("reason")

    def _read_call(self, call: dict[str, Any]) -> None:
        name, outcome = str(call.get("name")), call.get("outcome")
        self.tools.append(name)
        self.errors += outcome != "ok"
        arguments = orjson.dumps(call.get("arguments")).decode()
        self.words.append(f"{name} {arguments}")
        if outcome != "ok":
            self.words.append(str(call.get("result"))[:200])
        if outcome == "rule_broken":
            said = str(call.get("result"))[:200].replace(_END, " ")
            self.rules.append(_PARTICULAR.sub("…", said))

    def summarize(
        self, rollout_id: str, text: str, place: int | None
    ) -> tuple[Any, ...]:
        """Return the row of a rollout, in the order of ``COLUMNS``.

        ``text`` is the rollout's record as JSON. ``place`` is the rollout's position in
        the order in which rollouts ended; None if it has not ended.
        """
        record = orjson.loads(text)
        task, metadata = _task(record.get("input")), record.get("metadata") or {}
        group = str(metadata.get("group") or task.get("id") or "")
        phase, held_out = _phase(bool(record.get("is_train")), group)
        outcome, reason = self._outcome(record.get("status") or {})
        scored = (self.reward or {}) if outcome in ("succeeded", "failed") else {}
        score = scored.get("score") or {}
        speakers = scored.get("speakers") or []
        tokens = scored.get("response_tokens") or []
        instruction = str(task.get("instruction") or "")
        words = [rollout_id, str(task.get("id")), instruction, reason, *self.words]
        return (
            rollout_id,
            place,
            str(task.get("split") or ""),
            phase,
            held_out,
            metadata.get("step"),
            str(task.get("family") or ""),
            task.get("level"),
            str(task.get("id") or ""),
            group,
            outcome,
            reason.partition(": ")[0] if outcome == "failed" else reason,
            scored.get("value"),
            score.get("right_tool"),
            score.get("right_arguments"),
            self.model_calls,
            sum(tokens) if tokens else None,
            len(self.tools),
            self.errors,
            scored.get("duration_s"),
            _listed(self.rules),
            _listed(speakers),
            instruction[:_MOST_INSTRUCTION],
            _END.join(speakers),
            _turns(speakers, tokens),
            " ".join(words)[:_MOST_WORDS].lower(),
        )

    def _outcome(self, status: dict[str, Any]) -> tuple[str, str]:
        """Return the outcome, e.g. ``succeeded`` or ``unfinished``, and its reason."""
        state = status.get("state")
        if state not in (RolloutState.SUCCEEDED, RolloutState.FAILED):
            return "unfinished", ""
        if state == RolloutState.SUCCEEDED and self.reward is not None:
            reached = bool((self.reward.get("score") or {}).get("success"))
            why = (self.reward.get("reason") or {}).get("kind", "")
            if reached:
                return "succeeded", why
            return "failed", why or "goal not reached"
        kind = (self.failure or {}).get("kind")
        return "dropped", str(kind or status.get("error_message") or NO_REASON.kind)


def _task(given: Any) -> dict[str, Any]:
    """Return the task in a rollout's input, which other programs may have written."""
    if isinstance(given, dict) and "task" in given:
        given = given["task"]
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except ValueError:
            return {"instruction": given}
    return given if isinstance(given, dict) else {}


def _phase(is_train: bool, group: str) -> tuple[str, str]:
    """Return a rollout's phase and its held-out set, from the name of its group.

    The set is empty unless the phase measures held-out tasks.
    """
    if is_train:
        return TRAIN, ""
    if found := _MEASURED.match(group):
        return found[1], found[2].replace("_", " ")
    checked = _CHECKED.match(group)
    return (_CHECKS[checked[1]] if checked else "other"), ""


def _turns(speakers: list[str], tokens: list[int]) -> list[tuple[str, int, int | None]]:
    """Return each role with its numbers of model calls and sampled tokens.

    ``speakers`` has the role of each model call. The number of tokens is None if
    ``tokens`` is empty.
    """
    calls, sampled = Counter(speakers), Counter[str]()
    for role, count in zip(speakers, tokens, strict=False):
        sampled[role] += count
    return [(role, calls[role], sampled[role] if tokens else None) for role in calls]


def _listed(values: list[str]) -> str:
    """Join values to one text, without duplicates, with a newline around each value."""
    return "".join(f"{_END}{value}" for value in dict.fromkeys(values)) + (
        _END if values else ""
    )
