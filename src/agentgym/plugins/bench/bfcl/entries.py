"""Read entries (test cases) of the benchmark, and assign them to splits."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.core.task import Split
from agentgym.errors import NotFoundError, UsageError
from agentgym.plugins.bench.bfcl.package import NAME, Package

IRRELEVANCE = ("irrelevance", "live_irrelevance")
"""Categories in which no function fits the request: no call may be made."""
RELEVANCE = "live_relevance"
"""The category in which any call is right; it is never trained on."""
SINGLE_TURN = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
MULTI_TURN = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
CATEGORIES = SINGLE_TURN + MULTI_TURN
_NON_LIVE = tuple(name for name in SINGLE_TURN if not name.startswith("live_"))
GROUPS = {
    "all": CATEGORIES,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "non_live": _NON_LIVE,
    "live": tuple(name for name in SINGLE_TURN if name.startswith("live_")),
    "simple": tuple(name for name in SINGLE_TURN if name.startswith("simple_")),
    "python": tuple(name for name in SINGLE_TURN if "java" not in name),
}
_SHARES = {Split.TRAIN: 0.45, Split.VALIDATION: 0.1, Split.TEST: 0.45}
"""Wanted share of each split in a category. The largest group of entries with common
functions always goes to the test split, and so does ``live_relevance``."""


@dataclass(frozen=True)
class Entry:
    """One test case of the benchmark: a request, its functions and right calls.

    Attributes:
        functions: Schemas of the functions, as in the benchmark's files. Types have the
            names of Python, Java or JavaScript, e.g. ``dict``.
        answers: The right calls, each as ``{function: {argument: [value, …]}}`` with
            all values that are right. The value ``""`` means that the argument may be
            omitted.
    """

    id: str
    category: str
    messages: Sequence[dict[str, Any]]
    functions: Sequence[dict[str, Any]]
    answers: Sequence[dict[str, Any]]

    @property
    def request(self) -> str:
        """The whole conversation as one text, which ends with the user's request."""
        *before, last = self.messages
        system = [str(m["content"]) for m in before if m["role"] == "system"]
        said = [
            f"{str(m['role']).capitalize()}: {m['content']}"
            for m in before
            if m["role"] != "system"
        ]
        return "\n\n".join([*system, *said, str(last["content"])])


def chosen_categories(named: str) -> tuple[str, ...]:
    """Return the categories that the user has selected."""
    wanted: set[str] = set()
    for name in filter(None, map(str.strip, (named or "single_turn").split(","))):
        if name not in GROUPS and name not in CATEGORIES:
            raise NotFoundError("category of BFCL", name, [*CATEGORIES, *GROUPS])
        wanted.update(GROUPS.get(name, (name,)))
    return tuple(name for name in CATEGORIES if name in wanted)


def read_entries(package: Package) -> list[Entry]:
    """Return all single-turn entries."""
    return [
        entry for category in SINGLE_TURN for entry in _read_category(package, category)
    ]


def _read_category(package: Package, category: str) -> Iterable[Entry]:
    file = f"data/BFCL_v4_{category}.json"
    lines = package.lines(file)
    answers: dict[Any, Any] = {}
    if category not in IRRELEVANCE and category != RELEVANCE:
        known = package.lines(f"data/possible_answer/BFCL_v4_{category}.json")
        answers = {line.get("id"): line.get("ground_truth") for line in known}
        missing = [line.get("id") for line in lines if not answers.get(line.get("id"))]
        if missing:
            raise UsageError(
                f"{package.path}: {len(missing)} entries of {category} have no answer "
                f"in {NAME}/data/possible_answer, e.g. {missing[0]}."
            )
    for line in lines:
        try:
            [turn] = line["question"]
            yield Entry(
                id=str(line["id"]),
                category=category,
                messages=[{"role": m["role"], "content": m["content"]} for m in turn],
                functions=list(line["function"]),
                answers=answers.get(line["id"], ()),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{package.path}: the entry {line.get('id')!r} of {NAME}/{file} is "
                f"not one of BFCL v4 ({type(error).__name__}: {error})."
            ) from None


def split_entries(entries: Sequence[Entry]) -> dict[Split, list[Entry]]:
    """Assign entries to splits, so that no function or request is in two splits."""
    groups = _groups(entries)
    wanted = Counter(entry.category for entry in entries)
    had: dict[Split, Counter[str]] = {split: Counter() for split in _SHARES}
    found: dict[Split, list[Entry]] = {split: [] for split in _SHARES}
    for group in groups:
        counts = Counter(entry.category for entry in group)

        def lack(split: Split, counts: Counter[str] = counts) -> float:
            """Return how urgently a split needs entries of the group's categories."""
            return sum(
                n * (_SHARES[split] - had[split][name] / wanted[name])
                for name, n in counts.items()
            )

        held_out = group is groups[0] or RELEVANCE in counts
        split = Split.TEST if held_out else max(_SHARES, key=lack)
        had[split].update(counts)
        found[split] += group
    return found


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group entries that have a function or a request in common, the largest first."""
    leader: dict[str, str] = {}

    def find(key: str) -> str:
        leader.setdefault(key, key)
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for entry in entries:
        first = find(f"entry {entry.id}")
        words = " ".join(re.findall(r"\w+", entry.request.lower()))
        for key in (f"request {words}", *(f["name"] for f in entry.functions)):
            leader[find(key)] = first
    found: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[find(f"entry {entry.id}")].append(entry)
    return sorted(found.values(), key=lambda group: (-len(group), group[0].id))
