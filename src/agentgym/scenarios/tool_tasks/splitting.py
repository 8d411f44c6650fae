"""Assign the tasks of a tasks file to splits, similar tasks to the same split.

Otherwise a model could solve held-out tasks from memory. Similar tasks have the same
argument values, or nearly the same words. With too few tasks, the rule is relaxed.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from agentgym.core.task import Split
from agentgym.errors import UsageError
from agentgym.scenarios.tool_tasks.task_file import TaskLine

LEAST = {Split.TRAIN: 6, Split.VALIDATION: 3, Split.TEST: 3}
"""Least number of tasks in each split."""

_SHARES = {Split.TRAIN: 0.6, Split.VALIDATION: 0.2, Split.TEST: 0.2}
_HELD_OUT = 0.2
"""Wanted share of the lines in the test split."""
_ALIKE = 0.8
_MOST_COMPARED = 1000
_TRAIN_AT_LEAST = 0.4
_RARE = 0.1

Groups = list[list[TaskLine]]


def split_lines(lines: Sequence[TaskLine]) -> tuple[dict[Split, list[TaskLine]], str]:
    """Assign the lines of a tasks file to splits, always in the same way."""
    _refuse_contradictions(lines)
    if all(line.split is not None for line in lines):
        chosen = {split: [x for x in lines if x.split is split] for split in Split}
        if problem := _too_small(chosen):
            raise UsageError(f"The splits that the file names are too small: {problem}")
        return chosen, "as the file says"
    least = sum(LEAST.values())
    if len(lines) < least:
        raise UsageError(
            f"There are {len(lines)} tasks; at least {least} are needed: "
            f"{_needed()}. Write more, or ask `agentgym tasks starter` for some."
        )
    words = _wordings(lines)
    common = _common_values(lines)
    levels: dict[str, Callable[[TaskLine], set[str]]] = {
        "no value and no wording": lambda line: _values(line) | {words[line.number]},
        "no value": _values,
        "no rare value": lambda line: _values(line) - common,
        "no request": lambda line: set(),
    }
    found: list[tuple[tuple[int, int], dict[Split, list[TaskLine]], str]] = []
    for shared, keys in levels.items():
        if found and shared == "no request":  # only if necessary
            break
        chosen = _assign(_groups(lines, keys))
        enough = len(chosen[Split.TRAIN]) >= _TRAIN_AT_LEAST * len(lines)
        if not _too_small(chosen) and enough:
            lacking = max(0, int(_HELD_OUT * len(lines)) - len(chosen[Split.TEST]))
            found.append(((len(unmeasured(chosen)), lacking), chosen, shared))
            if found[-1][0] == (0, 0):
                break
    if found:
        # The fewest unmeasured families, then the most held-out tasks. If these are
        # equal, the strictest separation.
        _, chosen, shared = min(found, key=lambda each: each[0])
    elif problem := _too_small(chosen):
        raise UsageError(f"The tasks are too few or too alike to be split: {problem}")
    return chosen, f"{shared} is in two of them"


def unmeasured(chosen: Mapping[Split, Sequence[TaskLine]]) -> list[str]:
    """Return the families (kinds of task) with training tasks but no test tasks."""
    tested = {line.family for line in chosen[Split.TEST]}
    trained = dict.fromkeys(line.family for line in chosen[Split.TRAIN])
    return [family for family in trained if family not in tested]


def _refuse_contradictions(lines: Sequence[TaskLine]) -> None:
    named: dict[str, TaskLine] = {}
    for line in lines:
        if line.split is not None:
            other = named.setdefault(plain_words(line.instruction), line)
            if other.split is not line.split:
                raise UsageError(
                    f"Lines {other.number} and {line.number} ask the same, but one is "
                    f"in the split {other.split} and one in {line.split}. Held-out "
                    "tasks must not be trained on: put them into one."
                )


def _too_small(chosen: dict[Split, list[TaskLine]]) -> str:
    if all(len(chosen[split]) >= least for split, least in LEAST.items()):
        return ""
    has = ", ".join(f"{split} has {len(chosen[split])}" for split in LEAST)
    return f"{has}; at least {_needed()} are needed. Write other requests."


def _needed() -> str:
    return ", ".join(f"{least} for {split}" for split, least in LEAST.items())


def _values(line: TaskLine) -> set[str]:
    """Return the argument values in the user's request, but bools and characters."""
    said = plain_words(line.instruction)
    return {
        f"value {key}"
        for key, value in line.values.items()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        if len(str(value)) > 1 and plain_words(str(value)) in said
    }


def _common_values(lines: Sequence[TaskLine]) -> set[str]:
    counts = Counter(key for line in lines for key in _values(line))
    return {key for key, count in counts.items() if count > max(2, _RARE * len(lines))}


def _wordings(lines: Sequence[TaskLine]) -> dict[int, str]:
    """Return a key for the wording of each request, but for values and a few words."""
    known: list[tuple[str, set[str]]] = []
    found: dict[int, str] = {}
    exact: dict[str, str] = {}
    for line in lines:
        said = plain_words(line.instruction)
        texts = [plain_words(str(value)) for value in line.values.values()]
        for text in sorted(filter(None, texts), key=len, reverse=True):
            said = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "_", said)
        if said not in exact:
            own = set(said.split())
            near = (
                name
                for name, other in known[:_MOST_COMPARED]
                if len(own & other) >= _ALIKE * len(own | other)
            )
            exact[said] = next(near, f"wording {said}")
            known.append((exact[said], own))
        found[line.number] = exact[said]
    return found


def _groups(lines: Sequence[TaskLine], keys: Callable[[TaskLine], set[str]]) -> Groups:
    """Group lines so that no two groups have a common key or request."""
    parent = list(range(len(lines)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        for key in {f"request {plain_words(line.instruction)}", *keys(line)}:
            parent[root(index)] = root(first.setdefault(key, index))
    groups: dict[int, list[TaskLine]] = defaultdict(list)
    for index, line in enumerate(lines):
        groups[root(index)].append(line)
    return sorted(groups.values(), key=lambda group: (-len(group), _digest(group)))


def _assign(groups: Groups) -> dict[Split, list[TaskLine]]:
    """Assign each group to the split that needs tasks of its families the most."""
    total = sum(map(len, groups))
    families = Counter(line.family for group in groups for line in group)
    chosen: dict[Split, list[TaskLine]] = {split: [] for split in Split}
    taken: dict[Split, Counter[str]] = {split: Counter() for split in Split}

    def give(split: Split, given: Sequence[TaskLine]) -> None:
        chosen[split] += given
        taken[split].update(line.family for line in given)

    free: Groups = []
    placed: list[tuple[Split, list[TaskLine]]] = []
    for group in groups:
        pinned = [line.split for line in group if line.split is not None]
        for line in group:
            if pinned:
                give(line.split or pinned[0], [line])
        if not pinned:
            free.append(group)
    for group in free:

        def lack(split: Split, group: Sequence[TaskLine] = group) -> float:
            share = _SHARES[split]
            if split is not Split.TRAIN:
                over = len(chosen[split]) + len(group) > 1.5 * share * total + 1
                new = any(not taken[Split.TRAIN][line.family] for line in group)
                if over or new:
                    return -float("inf")
            of_kind = [
                1 - taken[split][line.family] / (share * families[line.family])
                for line in group
            ]
            of_all = 1 - len(chosen[split]) / (share * total)
            return of_all + sum(of_kind) / len(of_kind)

        best = max(LEAST, key=lack)
        give(best, group)
        placed.append((best, group))
    _fill(chosen, placed)
    return {
        split: sorted(found, key=lambda line: line.number)
        for split, found in chosen.items()
    }


def _fill(
    chosen: dict[Split, list[TaskLine]], placed: list[tuple[Split, list[TaskLine]]]
) -> None:
    """Move groups of lines into splits with too few, while others can spare."""

    # Small groups move first, and those whose families are still trained on without
    # them.
    def cost(index: int) -> tuple[int, int, int]:
        split, group = placed[index]
        trained = Counter(line.family for line in chosen[Split.TRAIN])
        own = Counter(line.family for line in group) if split is Split.TRAIN else {}
        lost = sum(trained[family] == count for family, count in own.items())
        return lost, len(group), LEAST[split] - len(chosen[split])

    def short_of() -> Split | None:
        few = (split for split in LEAST if len(chosen[split]) < LEAST[split])
        return next(few, None)

    while (short := short_of()) is not None:
        spare = [
            index
            for index, (split, group) in enumerate(placed)
            if len(chosen[split]) - len(group) >= LEAST.get(split, 0)
        ]
        if not spare:
            return
        index = min(spare, key=cost)
        split, group = placed[index]
        chosen[split] = [line for line in chosen[split] if line not in group]
        chosen[short] += group
        placed[index] = (short, group)


def _digest(group: Sequence[TaskLine]) -> str:
    text = "\n".join(sorted(line.instruction for line in group))
    return hashlib.sha256(text.encode()).hexdigest()


def plain_words(text: str) -> str:
    """Return a text in lower case, without punctuation, with single spaces."""
    return " ".join(re.findall(r"\w+", text.lower()))
