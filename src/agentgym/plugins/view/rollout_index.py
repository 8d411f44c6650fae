"""RolloutIndex: a table of all rollouts of a run, in memory, to filter and sort."""

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add
from os import SEEK_CUR
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentgym.core.trajectory import NO_REASON
from agentgym.errors import UsageError
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.store.records import (
    ATTEMPT_FAILED,
    FIRST_ATTEMPT,
    MODEL_REQUEST,
    RolloutState,
)
from agentgym.train.run_folder import CREDIT_FILE

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
    "words TEXT",
    "turns",
)
"""Columns of a summary, in the order of a row; the first is its key.

The last three are not shown. ``speakers``: the roles of all model calls, in order.
``words``: the text to search. ``turns``: each role's numbers of model calls and sampled
tokens, for a separate table.
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
_MOST_SEARCHED = 500  # words; SQLite nests no more than 1,000 conditions
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
        """Add one event to the summary; ``data`` of a model call may be None."""
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

        ``place`` is its position in the order in which rollouts ended; None if it has
        not.
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
            " ".join(words)[:_MOST_WORDS].lower(),
            _turns(speakers, tokens),
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
    """Return a rollout's phase and its held-out set, from the name of its group."""
    if is_train:
        return TRAIN, ""
    if found := _MEASURED.match(group):
        return found[1], found[2].replace("_", " ")
    checked = _CHECKED.match(group)
    return (_CHECKS[checked[1]] if checked else "other"), ""


def _turns(speakers: list[str], tokens: list[int]) -> list[tuple[str, int, int | None]]:
    """Return each role with its numbers of model calls and sampled tokens, or None."""
    calls, sampled = Counter(speakers), Counter[str]()
    for role, count in zip(speakers, tokens, strict=False):
        sampled[role] += count
    return [(role, calls[role], sampled[role] if tokens else None) for role in calls]


def _listed(values: list[str]) -> str:
    """Join values to one text, without duplicates, with a newline around each value."""
    return "".join(f"{_END}{value}" for value in dict.fromkeys(values)) + (
        _END if values else ""
    )


_CHUNK_BYTES = 2**20


class Learned(NamedTuple):
    """Sums over the trained tokens of some model calls, in nats, and numbers of tokens.

    Attributes:
        gap: Sum over the tokens of the absolute difference between the log-probability
            at sampling and that computed in training.
        entropy: Sum of the policy's entropies before the update.
        kl: Sum of the k3 estimates of KL between the sampling and the updated policy;
            only part of a batch is measured.
    """

    gap: float = 0.0
    gap_tokens: int = 0
    entropy: float = 0.0
    entropy_tokens: int = 0
    kl: float = 0.0
    kl_tokens: int = 0


class CreditLog:
    """Reads each complete line of ``credit.jsonl`` once; the file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def read(self) -> Iterator[list[tuple[str, list[Learned | None]]]]:
        """Yield new lines in batches: a rollout id, and sums per model call or None."""
        try:
            with open(self._path, "rb") as file:
                if self._path.stat().st_size < self._end:  # it was replaced
                    self._end = 0
                file.seek(self._end)
                while lines := file.readlines(_CHUNK_BYTES):
                    if not lines[-1].endswith(b"\n"):  # it is being written
                        file.seek(-len(lines.pop()), SEEK_CUR)
                    self._end = file.tell()
                    yield [found for line in lines if (found := _read(line))]
                    if not lines:
                        return
        except OSError:
            return


def _read(line: bytes) -> tuple[str, list[Learned | None]] | None:
    """Return a line's rollout id and sums; None if it has no sums or cannot be read."""
    try:
        read = orjson.loads(line)
        sums = [_sums(call) for call in read["calls"]]
        return (str(read["rollout"]), sums) if any(sums) else None
    except (ValueError, KeyError, TypeError):
        return None


def _sums(call: dict[str, Any]) -> Learned | None:
    tokens = sum(end - start for start, end in call.get("spans", ()))
    gaps, entropy, kl = call.get("gaps"), call.get("entropy"), call.get("kl")
    if not tokens or (gaps is None and entropy is None and kl is None):
        return None
    return Learned(
        sum(map(abs, gaps or ())),  # empty if all are nearly zero
        0 if gaps is None else tokens,
        (entropy or 0.0) * tokens,
        0 if entropy is None else tokens,
        (kl or 0.0) * tokens,
        0 if kl is None else tokens,
    )


_EVENTS = """SELECT rowid, event_type, rollout_id, attempt_id,
    CASE event_type WHEN 'model_request' THEN NULL ELSE data END
    FROM events WHERE rowid > ? ORDER BY rowid LIMIT ?"""
_ENDED = """SELECT rollout_id, rollout, terminal_order FROM rollouts
    WHERE terminal_order > ? ORDER BY terminal_order LIMIT ?"""
_OPEN = """SELECT rollout_id, rollout FROM rollouts
    WHERE state IN ('queuing', 'running') LIMIT 2000"""
_CHUNK = 20_000
_MOST_ROWS = 500

EQUAL = (
    "split",
    "phase",
    "held_out",
    "step",
    "family",
    "level",
    "task_id",
    "task_group",
    "outcome",
    "reason",
)
"""Columns whose filter keeps the rows with a given value."""
LISTED = ("rules", "roles")
"""Columns with several values per row; a filter keeps rows that have a given value."""
FACETS = ("phase", "split", "held_out", "step", "family", "level", "outcome", "reason")
_RATIOS = {
    "success": ("sum(outcome = 'succeeded')", "count(*)"),
    "tool_reliability": ("sum(tool_calls - errors)", "sum(tool_calls)"),
    "reward": ("sum(reward)", "count(reward)"),
    "right_tool": ("sum(right_tool)", "count(right_tool)"),
    "right_arguments": ("sum(right_arguments)", "count(right_arguments)"),
    "model_calls": ("sum(part.model_calls)", "count(*)"),
    "tokens": ("sum(part.tokens)", "count(part.tokens)"),
    "gap": ("sum(part.gap)", "sum(part.gap_tokens)"),
    "entropy": ("sum(part.entropy)", "sum(part.entropy_tokens)"),
    "kl": ("sum(part.kl)", "sum(part.kl_tokens)"),
}
"""For each metric of :meth:`RolloutIndex.curves`, the two SQL sums that it divides."""
_LEARNED = ", ".join(f"{name} REAL" for name in Learned._fields)
_TURNS = f"""CREATE TABLE turns (number INTEGER, role TEXT, model_calls INTEGER,
    tokens INTEGER, {_LEARNED}, PRIMARY KEY (number, role)) WITHOUT ROWID"""
_ENDED_ROW = """SELECT number, speakers FROM rollouts
    WHERE rollout_id = ? AND place IS NOT NULL"""
_SET_LEARNED = (
    f"UPDATE {{}} SET {', '.join(f'{name} = ?' for name in Learned._fields)}"
    " WHERE number = ?"
)
_UNKNOWN = ", NULL" * len(Learned._fields)
_WRONG, _ALL = "wrong_argument", "all"
Facets = dict[str, Counter[Any]]
"""For each filter, the number of rollouts with each value."""
_KEPT, _SHOWN = NAMES[:-1], NAMES[:-3]


class RolloutIndex:
    """Keeps summaries of a run's rollouts in memory. Thread-safe."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._updating = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        columns = ", ".join(("number INTEGER PRIMARY KEY", *COLUMNS[: len(_KEPT)]))
        self._database.execute(f"CREATE TABLE rollouts ({columns}, {_LEARNED})")
        self._database.execute(_TURNS)
        self._credit = CreditLog(self._store.path.with_name(CREDIT_FILE))
        self._uncredited: list[tuple[str, list[Learned | None]]] = []
        self._counts: Facets = {}
        self._open_counts: Facets = {}
        self._numbers: dict[str, int] = {}
        self._next = 0
        for name in ("place", "task_id", "task_group"):
            self._database.execute(f"CREATE INDEX by_{name} ON rollouts ({name})")
        self._attempts: dict[str, Attempt] = {}
        self._last_event = self._last_end = 0
        self._identity: tuple[Any, ...] = ()

    def update(self) -> None:
        """Read new events; read all again if rows are lost, e.g. by a resume."""
        with self._updating:
            while self._read_chunk():
                pass
            self._read_credit()

    def _read_credit(self) -> None:
        """Read new lines of ``credit.jsonl``; keep those of unfinished rollouts."""
        early, self._uncredited = self._uncredited, []
        for lines in chain([early], self._credit.read()):
            with self._lock:
                self._uncredited += [line for line in lines if not self._learn(*line)]

    def _learn(self, rollout_id: str, calls: Sequence[Learned | None]) -> bool:
        """Write sums into a rollout's rows; return False if it has not ended."""
        row = self._database.execute(_ENDED_ROW, (rollout_id,)).fetchone()
        if row is None:
            return False
        number, speakers = row[0], row[1].split("\n")
        roles = speakers if len(speakers) == len(calls) else [""] * len(calls)
        whole, parts = Learned(), dict[str, Learned]()
        for role, call in zip(roles, calls, strict=True):
            if call is not None:
                whole = Learned(*map(add, whole, call))
                parts[role] = Learned(*map(add, parts.get(role, Learned()), call))
        self._database.execute(_SET_LEARNED.format("rollouts"), (*whole, number))
        self._database.executemany(
            f"{_SET_LEARNED.format('turns')} AND role = ?",
            [(*part, number, role) for role, part in parts.items()],
        )
        return True

    def _read_chunk(self) -> bool:
        """Read next events and ended rollouts; return whether there is more to read."""
        with self._store.reading() as store:
            if self._has_shrunk(store):
                with self._lock:
                    self._reset()
            events = store.execute(_EVENTS, (self._last_event, _CHUNK)).fetchall()
            for rowid, kind, rollout_id, attempt_id, data in events:
                self._attempt(rollout_id, attempt_id).read(kind, data)
                self._last_event = rowid
            has_more = len(events) == _CHUNK
            ended = store.execute(_ENDED, (self._last_end, _CHUNK)).fetchall()
            if has_more:  # an end comes with the last event of its rollout
                ended = self._complete(store, ended)
            rows = [
                self._attempts.pop(rollout_id, Attempt()).summarize(
                    rollout_id, text, place
                )
                for rollout_id, text, place in ended
            ]
            unfinished = [] if has_more else store.execute(_OPEN).fetchall()
        still_open = [
            self._attempts.get(rollout_id, Attempt()).summarize(rollout_id, text, None)
            for rollout_id, text in unfinished
        ]
        if ended:
            self._last_end = ended[-1][2]
        self._write(rows, still_open)
        return has_more or len(ended) == _CHUNK

    def _write(
        self, ended: Sequence[tuple[Any, ...]], still_open: Sequence[tuple[Any, ...]]
    ) -> None:
        """Write rows of ended and of running rollouts, replacing their earlier rows."""
        rows = [*ended, *still_open]
        if not rows:
            return
        marks = ", ".join("?" * (1 + len(_KEPT))) + _UNKNOWN
        with self._lock:
            known = [(self._number(row[0]), row) for row in rows]
            self._database.executemany(
                f"INSERT OR REPLACE INTO rollouts VALUES ({marks})",
                [(number, *row[: len(_KEPT)]) for number, row in known],
            )
            self._database.executemany(
                f"INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?{_UNKNOWN})",
                [(number, *turn) for number, row in known for turn in row[-1]],
            )
            self._numbers |= {row[0]: number for number, row in known[len(ended) :]}
            _count(ended, self._counts)
            self._open_counts = _count(still_open, {})

    def _number(self, rollout_id: str) -> int:
        """Return the row number that a rollout had while running, or a new number."""
        number = self._numbers.pop(rollout_id, None)
        if number is None:
            number, self._next = self._next, self._next + 1
        return number

    def _complete(
        self, store: sqlite3.Connection, ended: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of ``ended`` before the first rollout with unread events."""
        last = """SELECT max(rowid) FROM events WHERE rollout_id = ?"""
        found = []
        for row in ended:
            ((newest,),) = store.execute(last, row[:1])
            if newest is not None and newest > self._last_event:
                break
            found.append(row)
        return found

    def _has_shrunk(self, store: sqlite3.Connection) -> bool:
        """Return whether the database was replaced, or has lost rows."""
        ((newest, ended),) = store.execute(
            "SELECT (SELECT max(rowid) FROM events),"
            " (SELECT max(terminal_order) FROM rollouts)"
        )
        return (newest or 0) < self._last_event or (ended or 0) < self._last_end

    def _attempt(self, rollout_id: str, attempt_id: str) -> Attempt:
        found = self._attempts.get(rollout_id)
        if found is None or found.name != attempt_id:
            found = self._attempts[rollout_id] = Attempt(attempt_id)
        return found

    def find(
        self,
        filters: Mapping[str, str],
        *,
        sort: str = "-place",
        offset: int = 0,
        limit: int = 50,
    ) -> dict[str, Any]:
        """Return some of the rollouts that match the filters, and their total number.

        ``filters`` has a value by column; ``step`` and ``level`` may list several,
        ``text`` searches texts, ``wrong_argument`` means the right tool with wrong
        arguments. ``sort`` is a column, after a ``-`` descending.
        """
        name = sort.removeprefix("-")
        if name not in _SHOWN:
            raise UsageError(f"Rollouts cannot be sorted by {name!r}.")
        order = f"{name} {'DESC' if sort.startswith('-') else 'ASC NULLS LAST'}"
        limits = max(1, min(limit, _MOST_ROWS)), max(0, offset)
        with self._lock:
            where, values = self._conditions(filters)
            sql = f"""SELECT {", ".join(_SHOWN)} FROM rollouts {where}
                ORDER BY {order}, number LIMIT ? OFFSET ?"""
            page = (*values, *limits)
            ((total,),) = self._database.execute(
                f"SELECT count(*) FROM rollouts {where}", values
            )
            rows = self._database.execute(sql, page).fetchall()
        return {"total": total, "rows": [_record(row) for row in rows]}

    def next_failed(self, rollout_id: str) -> str | None:
        """Return the next failed rollout of the same phase and set, or None."""
        sql = """SELECT next.rollout_id FROM rollouts AS next, rollouts AS own
            WHERE own.rollout_id = ? AND next.rollout_id != own.rollout_id
            AND next.outcome = 'failed' AND next.phase = own.phase
            AND next.held_out = own.held_out
            ORDER BY next.place < own.place, next.place LIMIT 1"""
        with self._lock:
            row = self._database.execute(sql, (rollout_id,)).fetchone()
        return None if row is None else str(row[0])

    def facets(self) -> dict[str, Any]:
        """Return the values of each filter column, and how many rollouts have each."""
        names = (*FACETS, *LISTED)
        with self._lock:
            both = {
                name: self._counts.get(name, Counter())
                + self._open_counts.get(name, Counter())
                for name in (*names, _WRONG, _ALL)
            }
        found: dict[str, Any] = {
            name: sorted(both[name].items(), key=_by_type) for name in names
        }
        return found | {name: both[name].total() for name in (_WRONG, _ALL)}

    def speakers(self, filters: Mapping[str, str]) -> list[tuple[list[str], int]]:
        """Return the sequences in which roles spoke, with numbers of rollouts."""
        with self._lock:
            where, values = self._conditions(filters)
            both = f"{where} AND" if where else "WHERE"
            rows = self._database.execute(
                f"SELECT speakers, count(*) FROM rollouts {both} speakers != ''"
                " GROUP BY 1",
                values,
            ).fetchall()
        return [(text.split("\n"), count) for text, count in rows]

    def curves(self, by: str) -> list[dict[str, Any]]:
        """Return metrics of training rollouts for each step and each value of a column.

        Most are means over rollouts; the gap of log-probabilities, entropy and KL are
        means over trained tokens. With the column ``roles``, a rollout counts for each
        role.
        """
        if by not in ("family", "level", "roles"):
            raise UsageError(f"Curves cannot be drawn by {by!r}.")
        is_role = by == "roles"
        column = "part.role" if is_role else by
        parts = "JOIN turns AS part USING (number)" if is_role else "AS part"
        means = [f"1.0 * {top} / nullif({all_}, 0)" for top, all_ in _RATIOS.values()]
        sql = f"""SELECT {column}, step, {", ".join(means)} FROM rollouts {parts}
            WHERE phase = 'train' AND outcome IN ('succeeded', 'failed')
            GROUP BY 1, 2 ORDER BY 1, 2"""
        with self._lock:
            rows = self._database.execute(sql).fetchall()
        names = ("name", "step", *_RATIOS)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _conditions(self, filters: Mapping[str, str]) -> tuple[str, list[Any]]:
        """Convert filters to an SQL condition and its parameters."""
        parts: list[str] = []
        values: list[Any] = []
        for name, given in filters.items():
            if name in EQUAL:
                several = given.split(",") if name in ("step", "level") else [given]
                parts.append(f"{name} IN ({', '.join('?' * len(several))})")
                values += several
            elif name in LISTED:
                parts.append(f"instr({name}, ?)")
                values.append(f"\n{given}\n")
            elif name == "text":
                wanted = list(dict.fromkeys(given.lower().split()))[:_MOST_SEARCHED]
                parts += ["instr(words, ?)"] * len(wanted)
                values += wanted
            elif name == "wrong_argument":
                parts.append("right_tool > right_arguments")
            else:
                raise UsageError(f"Rollouts cannot be filtered by {name!r}.")
        return f"WHERE {' AND '.join(parts)}" if parts else "", values


def _by_type(item: tuple[Any, int]) -> tuple[bool, Any]:
    """Return a sort key for mixed values: numbers before texts."""
    return isinstance(item[0], str), item[0]


def _count(rows: Sequence[tuple[Any, ...]], counts: Facets) -> Facets:
    """Add the values of the rows' filter columns to ``counts``; return ``counts``."""
    for row in rows:
        record = dict(zip(NAMES, row, strict=True))
        named = {name: [record[name]] for name in FACETS}
        named |= {name: record[name].split("\n") for name in LISTED}
        shares = record["right_tool"], record["right_arguments"]
        is_wrong = None not in shares and shares[0] > shares[1]
        named |= {_WRONG: [True] * is_wrong, _ALL: [True]}
        for name, values in named.items():
            known = (value for value in values if value not in (None, ""))
            counts.setdefault(name, Counter()).update(known)
    return counts


def _record(row: Sequence[Any]) -> dict[str, Any]:
    record = dict(zip(_SHOWN, row, strict=True))
    for name in LISTED:
        text = record[name].strip("\n")
        record[name] = text.split("\n") if text else []
    return record
