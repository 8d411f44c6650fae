"""RolloutIndex: a table of all rollouts of a run, in memory, to filter and sort."""

import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os import SEEK_END
from time import monotonic
from typing import Any

import orjson

from agentgym.core.trajectory import NO_REASON
from agentgym.errors import UsageError
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.store.records import ATTEMPT_FAILED, MODEL_REQUEST, RolloutState
from agentgym.train.run_folder import CREDIT_FILE

# Columns of the table of rollouts, with their types.
SHOWN = {
    "rollout_id": "TEXT UNIQUE",
    "place": "INTEGER",
    "split": "TEXT",
    "phase": "TEXT",
    "held_out": "TEXT",
    "step": "INTEGER",
    "family": "TEXT",
    "level": "INTEGER",
    "task_id": "TEXT",
    "task_group": "TEXT",
    "outcome": "TEXT",
    "reason": "TEXT",
    "reward": "REAL",
    "right_tool": "REAL",
    "right_arguments": "REAL",
    "model_calls": "INTEGER",
    "tokens": "INTEGER",
    "tool_calls": "INTEGER",
    "errors": "INTEGER",
    "seconds": "REAL",
    "rules": "TEXT",
    "roles": "TEXT",
    "instruction": "TEXT",
}
# The roles of all model calls in order, and the text to search.
_COLUMNS = {**SHOWN, "speakers": "TEXT", "words": "TEXT"}
FACETS = ("phase", "split", "held_out", "step", "family", "level", "outcome", "reason")
# Columns whose filter keeps the rows with a given value.
EQUAL = (*FACETS, "task_id", "task_group")
# Columns with several values per row; a filter keeps rows that have a given value.
LISTED = ("rules", "roles")

TRAIN = "train"
_SCORED = ("succeeded", "failed")
_MEASURED = re.compile(r"(before|warmed|after)_(.+)-t\d+$")
_CHECKED = re.compile(r"(v|c|best-|first-)\d+-t\d+$")
_CHECKS = {
    "v": "validation",
    "c": "confirmation",
    "best-": "choice",
    "first-": "choice",
}
# Paths, quoted values and numbers vary between violations of a rule.
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\S*[/.]\S*\w|\d+")
_MOST_WORDS = 2000
_MOST_SEARCHED = 500  # words; SQLite nests no more than 1,000 conditions
_MOST_INSTRUCTION = 300
_CHUNK = 200  # rollouts that are read at once, so that requests wait little
_END = "\n"

_EVENTS = """SELECT event_type, attempt_id,
    CASE event_type WHEN 'model_request' THEN NULL ELSE data END
    FROM events WHERE rollout_id = ? ORDER BY rowid"""
_ENDED = """SELECT rollout_id, rollout, terminal_order FROM rollouts
    WHERE terminal_order > ? ORDER BY terminal_order LIMIT ?"""
_OPEN = """SELECT rollout_id, rollout, NULL FROM rollouts
    WHERE state IN ('queuing', 'running') LIMIT 2000"""

# A row per role of a training rollout, and a row of the role "" for all of it. The last
# columns are sums over trained tokens, in nats, and the numbers of these tokens: of the
# absolute difference between the log-probability at sampling and in training, of the
# policy's entropy before the update, and of the k3 estimate of KL to the policy that
# sampled.
_LEARNED = ("gap", "gap_tokens", "entropy", "entropy_tokens", "kl", "kl_tokens")
_TURNS = f"""CREATE TABLE turns (number INTEGER, role TEXT, model_calls INTEGER,
    tokens INTEGER, {", ".join(f"{name} REAL" for name in _LEARNED)},
    PRIMARY KEY (number, role)) WITHOUT ROWID"""
_SET_LEARNED = f"""UPDATE turns SET {", ".join(f"{name} = ?" for name in _LEARNED)}
    WHERE number = ? AND role = ?"""
# The two SQL sums whose ratio is a metric of RolloutIndex.curves.
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

Row = dict[str, Any]
# A rollout's id, and the columns `_LEARNED` of each model call, or None.
Credit = tuple[str, Sequence[Sequence[float] | None]]
# A role, its number of model calls, and that of sampled tokens if it is known.
Turn = tuple[str, int, int | None]


class RolloutIndex:
    """Keeps summaries of a run's rollouts in memory. Thread-safe."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        self._database.execute(
            f"CREATE TABLE rollouts (number INTEGER PRIMARY KEY, {columns})"
        )
        self._database.execute(_TURNS)
        for name in ("place", "task_id", "task_group"):
            self._database.execute(f"CREATE INDEX by_{name} ON rollouts ({name})")
        self._counts: dict[str, Counter[Any]] = {}
        self._open_counts: dict[str, Counter[Any]] = {}
        self._last: tuple[str, int] = ("", 0)  # the newest ended rollout, and its place
        self._credit_end = 0
        self._uncredited: list[Credit] = []

    def update(self, seconds: float) -> bool:
        """Read new records of the store; return whether some are left after a time."""
        end = monotonic() + seconds
        while True:
            with self._lock:
                if not self._read_chunk():
                    self._read_credit()
                    return False
            if monotonic() >= end:
                return True

    def _read_chunk(self) -> bool:
        """Read rollouts that have ended since; return whether there are more."""
        with self._store.reading() as store:
            if self._has_shrunk(store):
                self._reset()
            ended = store.execute(_ENDED, (self._last[1], _CHUNK)).fetchall()
            has_more = len(ended) == _CHUNK
            unfinished = [] if has_more else store.execute(_OPEN).fetchall()
            found = [
                _summary(name, text, place, store.execute(_EVENTS, (name,)).fetchall())
                for name, text, place in (*ended, *unfinished)
            ]
        self._write(found)
        _count((row for row, _ in found[: len(ended)]), self._counts)
        self._open_counts = _count((row for row, _ in found[len(ended) :]), {})
        if ended:
            self._last = ended[-1][0], ended[-1][2]
        return has_more

    def _has_shrunk(self, store: sqlite3.Connection) -> bool:
        """Return whether the newest rollout is lost, as by a resume."""
        name, place = self._last
        sql = "SELECT 1 FROM rollouts WHERE rollout_id = ? AND terminal_order = ?"
        return bool(name) and store.execute(sql, (name, place)).fetchone() is None

    def _write(self, found: Sequence[tuple[Row, Sequence[Turn]]]) -> None:
        """Write rows, instead of those of rollouts that had not ended."""
        marks = ", ".join(f":{name}" for name in _COLUMNS)
        insert = f"INSERT INTO rollouts VALUES (NULL, {marks})"
        unknown = ", NULL" * len(_LEARNED)
        self._database.execute("DELETE FROM rollouts WHERE place IS NULL")
        for row, turns in found:
            number = self._database.execute(insert, row).lastrowid
            self._database.executemany(
                f"INSERT INTO turns VALUES (?, ?, ?, ?{unknown})",
                [(number, *turn) for turn in turns],
            )

    def _read_credit(self) -> None:
        """Read new lines of ``credit.jsonl``; keep those of unfinished rollouts."""
        early, self._uncredited = self._uncredited, []
        for rollout_id, sums in chain(early, self._new_credit()):
            if any(sums) and not self._learn(rollout_id, sums):
                self._uncredited.append((rollout_id, sums))

    def _new_credit(self) -> Iterator[Credit]:
        path = self._store.path.with_name(CREDIT_FILE)
        with suppress(OSError), open(path, "rb") as file:
            if file.seek(0, SEEK_END) < self._credit_end:  # it was replaced
                self._credit_end = 0
            file.seek(self._credit_end)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    return
                self._credit_end += len(line)
                with suppress(ValueError, LookupError, TypeError):  # cut by a kill
                    credit = orjson.loads(line)
                    yield credit["rollout"], list(map(_sums, credit["calls"]))

    def _learn(self, rollout_id: str, calls: Sequence[Sequence[float] | None]) -> bool:
        """Write the sums of a rollout's calls; return False if it has not ended."""
        row = self._database.execute(
            "SELECT number, speakers FROM rollouts"
            " WHERE rollout_id = ? AND place IS NOT NULL",
            (rollout_id,),
        ).fetchone()
        if row is None:
            return False
        number, speakers = row[0], row[1].split(_END)
        roles = speakers if len(speakers) == len(calls) else [""] * len(calls)
        parts: dict[str, list[float]] = {}
        for role, call in zip(roles, calls, strict=True):
            for name in {"", role} if call is not None else ():
                known = parts.get(name, [0.0] * len(_LEARNED))
                parts[name] = [a + b for a, b in zip(known, call or (), strict=True)]
        self._database.executemany(
            _SET_LEARNED, [(*part, number, role) for role, part in parts.items()]
        )
        return True

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
        if name not in SHOWN:
            raise UsageError(f"Rollouts cannot be sorted by {name!r}.")
        order = f"{name} {'DESC' if sort.startswith('-') else 'ASC NULLS LAST'}"
        where, values = _conditions(filters)
        page = f"ORDER BY {order}, number LIMIT ? OFFSET ?"
        [(total,)] = self._query(f"SELECT count(*) FROM rollouts {where}", values)
        rows = self._query(
            f"SELECT {', '.join(SHOWN)} FROM rollouts {where} {page}",
            (*values, limit, offset),
        )
        found = [dict(zip(SHOWN, row, strict=True)) for row in rows]
        for row in found:
            row |= {name: list(filter(None, row[name].split(_END))) for name in LISTED}
        return {"total": total, "rows": found}

    def _query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(sql, values).fetchall()

    def next_failed(self, rollout_id: str) -> str | None:
        """Return the next failed rollout of the same phase and set, or None."""
        sql = """SELECT next.rollout_id FROM rollouts AS next, rollouts AS own
            WHERE own.rollout_id = ? AND next.rollout_id != own.rollout_id
            AND next.outcome = 'failed' AND next.phase = own.phase
            AND next.held_out = own.held_out
            ORDER BY next.place < own.place, next.place LIMIT 1"""
        rows = self._query(sql, (rollout_id,))
        return str(rows[0][0]) if rows else None

    def facets(self) -> dict[str, Any]:
        """Return the values of each filter column, and how many rollouts have each."""
        with self._lock:
            none = Counter[Any]()
            both = {
                name: self._counts.get(name, none) + self._open_counts.get(name, none)
                for name in (*FACETS, *LISTED, "wrong_argument", "all")
            }
        totals = {name: both.pop(name).total() for name in ("wrong_argument", "all")}
        # Numbers come before texts.
        return totals | {
            name: sorted(counts.items(), key=lambda c: (isinstance(c[0], str), c[0]))
            for name, counts in both.items()
        }

    def speakers(self, filters: Mapping[str, str]) -> list[tuple[list[str], int]]:
        """Return the sequences in which roles spoke, with numbers of rollouts."""
        where, values = _conditions(filters)
        both = f"{where} AND" if where else "WHERE"
        sql = f"""SELECT speakers, count(*) FROM rollouts {both} speakers != ''
            GROUP BY 1"""
        return [(text.split(_END), n) for text, n in self._query(sql, values)]

    def curves(self, by: str) -> list[dict[str, Any]]:
        """Return metrics of training rollouts for each step and each value of a column.

        Most are means over rollouts; the gap of log-probabilities, entropy and KL are
        means over trained tokens. With the column ``roles``, a rollout counts for each
        role.
        """
        if by not in ("family", "level", "roles"):
            raise UsageError(f"Curves cannot be drawn by {by!r}.")
        column, parts = ("part.role", "!=") if by == "roles" else (by, "=")
        means = [f"1.0 * {top} / nullif({all_}, 0)" for top, all_ in _RATIOS.values()]
        rows = self._query(
            f"""SELECT {column}, step, {", ".join(means)}
            FROM rollouts JOIN turns AS part USING (number)
            WHERE part.role {parts} '' GROUP BY 1, 2 ORDER BY 1, 2"""
        )
        return [dict(zip(("name", "step", *_RATIOS), row, strict=True)) for row in rows]


def _conditions(filters: Mapping[str, str]) -> tuple[str, list[Any]]:
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


def _count(rows: Iterator[Row], counts: dict[str, Counter[Any]]) -> Any:
    """Add the values of the rows' filter columns to ``counts``; return ``counts``."""
    for row in rows:
        values = {name: [row[name]] for name in FACETS}
        values |= {name: row[name].split(_END) for name in LISTED}
        is_wrong = (row["right_tool"] or 0) > (row["right_arguments"] or 0)
        values |= {"wrong_argument": [True] * is_wrong, "all": [True]}
        for name, found in values.items():
            known = (value for value in found if value not in (None, ""))
            counts.setdefault(name, Counter()).update(known)
    return counts


def _summary(
    rollout_id: str, text: str, place: int | None, events: Sequence[tuple[Any, ...]]
) -> tuple[Row, list[Turn]]:
    """Return the row of a rollout, and its turns if it was trained on.

    ``place`` is its position in the order in which rollouts ended; None if it has not.
    """
    record = orjson.loads(text)
    task, metadata = _task(record.get("input")), record.get("metadata") or {}
    group = str(metadata.get("group") or task.get("id") or "")
    phase, held_out = _phase(bool(record.get("is_train")), group)
    newest = [
        (kind, data) for kind, attempt, data in events if attempt == events[-1][1]
    ]
    read = [(kind, orjson.loads(data)) for kind, data in newest if data is not None]
    calls = [data for kind, data in read if kind == "tool_call"]
    rewards = [data for kind, data in read if kind == "reward" and "score" in data]
    failures = [data.get("reason") for kind, data in read if kind == ATTEMPT_FAILED]
    reward = rewards[-1] if rewards else None
    failure = failures[-1] if failures else None
    outcome, reason = _outcome(record.get("status") or {}, reward, failure)
    scored = (reward or {}) if outcome in _SCORED else {}
    score = scored.get("score") or {}
    speakers = scored.get("speakers") or []
    tokens = scored.get("response_tokens") or []
    model_calls = sum(kind == MODEL_REQUEST for kind, _ in newest)
    instruction = str(task.get("instruction") or "")
    words = [rollout_id, str(task.get("id")), instruction, reason, *_words(calls)]
    row = {
        "rollout_id": rollout_id,
        "place": place,
        "split": str(task.get("split") or ""),
        "phase": phase,
        "held_out": held_out,
        "step": metadata.get("step"),
        "family": str(task.get("family") or ""),
        "level": task.get("level"),
        "task_id": str(task.get("id") or ""),
        "task_group": group,
        "outcome": outcome,
        "reason": reason.partition(": ")[0] if outcome == "failed" else reason,
        "reward": scored.get("value"),
        "right_tool": score.get("right_tool"),
        "right_arguments": score.get("right_arguments"),
        "model_calls": model_calls,
        "tokens": sum(tokens) if tokens else None,
        "tool_calls": len(calls),
        "errors": sum(call.get("outcome") != "ok" for call in calls),
        "seconds": scored.get("duration_s"),
        "rules": _listed(_rules(calls)),
        "roles": _listed(speakers),
        "instruction": instruction[:_MOST_INSTRUCTION],
        "speakers": _END.join(speakers),
        "words": " ".join(words)[:_MOST_WORDS].lower(),
    }
    turns: list[Turn] = []
    if phase == TRAIN and outcome in _SCORED:
        turns = [("", model_calls, row["tokens"]), *_turns(speakers, tokens)]
    return row, turns


def _words(calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the texts of tool calls that a search finds."""
    for call in calls:
        yield f"{call.get('name')} {orjson.dumps(call.get('arguments')).decode()}"
        if call.get("outcome") != "ok":
            yield str(call.get("result"))[:200]


def _rules(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rules that tool calls broke, without the particulars of a call."""
    broken = (call for call in calls if call.get("outcome") == "rule_broken")
    said = (str(call.get("result"))[:200].replace(_END, " ") for call in broken)
    return [_PARTICULAR.sub("…", text) for text in said]


def _outcome(
    status: Mapping[str, Any],
    reward: Mapping[str, Any] | None,
    failure: Mapping[str, Any] | None,
) -> tuple[str, str]:
    """Return the outcome, e.g. ``succeeded`` or ``unfinished``, and its reason."""
    state = status.get("state")
    if state not in (RolloutState.SUCCEEDED, RolloutState.FAILED):
        return "unfinished", ""
    if state == RolloutState.SUCCEEDED and reward is not None:
        why = (reward.get("reason") or {}).get("kind", "")
        if (reward.get("score") or {}).get("success"):
            return "succeeded", why
        return "failed", why or "goal not reached"
    kind = (failure or {}).get("kind")
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


def _turns(speakers: Sequence[str], tokens: Sequence[int]) -> list[Turn]:
    calls, sampled = Counter(speakers), Counter[str]()
    for role, count in zip(speakers, tokens, strict=False):
        sampled[role] += count
    return [(role, calls[role], sampled[role] if tokens else None) for role in calls]


def _listed(values: Sequence[str]) -> str:
    """Join values without duplicates, with a newline around each value."""
    return "".join(f"{_END}{value}" for value in dict.fromkeys(values)) + (
        _END if values else ""
    )


def _sums(call: Mapping[str, Any]) -> list[float] | None:
    """Return a model call's columns ``_LEARNED``; None if nothing was recorded."""
    tokens = sum(end - start for start, end in call.get("spans", ()))
    gaps, entropy, kl = call.get("gaps"), call.get("entropy"), call.get("kl")
    totals = [
        None if gaps is None else sum(map(abs, gaps)),  # no gaps: all are nearly zero
        None if entropy is None else entropy * tokens,
        None if kl is None else kl * tokens,
    ]
    if not tokens or totals == [None] * 3:
        return None
    pairs = [(0.0, 0) if total is None else (total, tokens) for total in totals]
    return [number for pair in pairs for number in pair]
