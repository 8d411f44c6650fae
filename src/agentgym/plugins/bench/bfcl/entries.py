"""Read entries (test cases) of the benchmark, and assign them to splits."""

import ast
import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec
from agentgym.errors import NotFoundError, UsageError
from agentgym.plugins.bench.bfcl.package import NAME, PROGRAM_FILES, Package
from agentgym.scenarios.schemas import spec_of_openai

_JSON_TYPES = {
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array"), "array"),
    **dict.fromkeys(("Queue", "Stack"), "array"),
    **dict.fromkeys(("object", "dict", "HashMap", "Hashtable"), "object"),
}
"""JSON's name of a type in Python, Java or JavaScript; other types become strings."""
_HINTS = {
    "java": " Note that the provided function is in Java 8 SDK syntax.",
    "javascript": " Note that the provided function is in JavaScript syntax.",
    "python": " Note that the provided function is in Python 3 syntax.",
}
_NAMES = {"java": "Java", "javascript": "JavaScript"}

_PROMPTS = "constants/default_prompts.py"
_NEW_FUNCTIONS = "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC"

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
GROUPS = {
    "all": CATEGORIES,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "non_live": tuple(name for name in SINGLE_TURN if not name.startswith("live_")),
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
        entry
        for category in SINGLE_TURN
        for entry in _read(package, category, partial(_single_turn, category))
    ]


def _single_turn(category: str, line: dict[str, Any], answers: Sequence[Any]) -> Entry:
    [turn] = line["question"]
    return Entry(
        id=str(line["id"]),
        category=category,
        messages=[{"role": m["role"], "content": m["content"]} for m in turn],
        functions=list(line["function"]),
        answers=answers,
    )


def _read[E: Entry](
    package: Package,
    category: str,
    make: Callable[[dict[str, Any], Sequence[Any]], E],
) -> Iterator[E]:
    """Yield the entries of a category, made of a line and its right answers."""
    file = f"BFCL_v4_{category}.json"
    answers: dict[Any, Any] = {}
    if is_answered := category not in IRRELEVANCE and category != RELEVANCE:
        known = package.lines(f"data/possible_answer/{file}")
        answers = {line.get("id"): line.get("ground_truth") for line in known}
    for line in package.lines(f"data/{file}"):
        about = f"{package.path}: the entry {line.get('id')!r} of {category}"
        answer = answers.get(line.get("id")) or ()
        if is_answered and not answer:
            raise UsageError(f"{about} has no answer in {NAME}/data/possible_answer.")
        try:
            yield make(line, answer)
        except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
            raise UsageError(
                f"{about} is not one of BFCL v4 ({type(error).__name__}: {error})."
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


@dataclass(frozen=True)
class ConversationEntry(Entry):
    """A test case with several turns, whose functions act on simulated programs.

    Attributes:
        right_calls: Right calls of each turn, as Python source. They are empty for a
            turn in which the agent must say that a function or an argument is missing.
        later: Functions that the agent does not have at first, by the number of the
            turn (from 0) in which it gets them.
    """

    turns: Sequence[str]
    right_calls: Sequence[Sequence[str]]
    later: Mapping[int, Sequence[dict[str, Any]]]
    programs: Sequence[str]
    start: Mapping[str, Any]

    @property
    def every_function(self) -> list[dict[str, Any]]:
        """The functions of all turns."""
        return [*self.functions, *(f for added in self.later.values() for f in added)]

    def named_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the function name and arguments of each right call of all turns."""
        properties = {
            f["name"]: f["parameters"]["properties"] for f in self.every_function
        }
        found = []
        for text in (call for turn in self.right_calls for call in turn):
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise ValueError(f"{text!r} is not a call")
            named = zip(properties.get(call.func.id, ()), call.args, strict=False)
            given = [*named, *((str(each.arg), each.value) for each in call.keywords)]
            arguments = {name: ast.literal_eval(value) for name, value in given}
            found.append((call.func.id, arguments))
        return found


def read_conversations(
    package: Package, categories: Iterable[str]
) -> list[ConversationEntry]:
    """Return all entries of the given multi-turn categories."""
    described = {
        program: package.lines(f"data/multi_turn_func_doc/{file}.json")
        for program, file in PROGRAM_FILES.items()
    }
    asks = _prompt(package)
    return [
        entry
        for category in categories
        for entry in _read(
            package, category, partial(_conversation, category, described, asks)
        )
    ]


def _conversation(
    category: str,
    described: Mapping[str, list[dict[str, Any]]],
    asks: str,
    line: dict[str, Any],
    answer: Sequence[Sequence[str]],
) -> ConversationEntry:
    functions = [f for name in line["involved_classes"] for f in described[name]]
    later = {
        int(turn): [f for name in names for f in functions if f["name"] == name]
        for turn, names in line.get("missed_function", {}).items()
    }
    missing = {f["name"] for added in later.values() for f in added}
    turns = ["\n\n".join(m["content"] for m in turn) for turn in line["question"]]
    if len(turns) != len(answer):
        raise ValueError(f"{len(turns)} turns and {len(answer)} answers")
    made = ConversationEntry(
        id=str(line["id"]),
        category=category,
        messages=[{"role": "user", "content": turns[0]}],
        functions=[f for f in functions if f["name"] not in missing],
        answers=(),
        turns=[asks if n in later else text for n, text in enumerate(turns)],
        right_calls=answer,
        later=later,
        programs=list(line["involved_classes"]),
        start=line.get("initial_config", {}),
    )
    made.named_calls()  # raises ValueError if one of them cannot be parsed
    return made


def _prompt(package: Package) -> str:
    """Return the text of the user's message that announces new functions."""
    try:
        for node in ast.parse(package.text(_PROMPTS)).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(name, ast.Name) and name.id == _NEW_FUNCTIONS
                for name in node.targets
            ):
                return str(ast.literal_eval(node.value))
    except (SyntaxError, ValueError):
        pass
    raise UsageError(f"{package.path}: {NAME}/{_PROMPTS} has no {_NEW_FUNCTIONS}.")


def language_of(category: str) -> str:
    """Return the language of a category: ``python``, ``java`` or ``javascript``."""
    last = category.rpartition("_")[2]
    return last if last in _NAMES else "python"


def tool_name(function: str) -> str:
    """Return the tool name of a function: its name with ``_`` instead of dots."""
    return function.replace(".", "_")


def specs_of(
    entry: Entry, functions: Sequence[dict[str, Any]] | None = None
) -> list[ToolSpec]:
    """Return the specs of tools for the functions of an entry (test case), in order."""
    named = entry.functions if functions is None else functions
    return [spec_of_openai(_tool(f, entry.category)) for f in named]


def _tool(function: dict[str, Any], category: str) -> dict[str, Any]:
    language = language_of(category)
    schema = copy.deepcopy(function["parameters"])
    properties = schema.get("properties", {})
    if language in _NAMES:
        for part in properties.values():
            _as_text(part, _NAMES[language])
    schema["type"] = "object"
    schema["properties"] = {n: _typed(part) for n, part in properties.items()}
    return {
        "name": tool_name(function["name"]),
        "description": function["description"] + _HINTS[language],
        "parameters": schema,
    }


def _as_text(part: dict[str, Any], language: str) -> None:
    """Change a Java or JavaScript argument's type to string, in place."""
    kind = part["type"]
    message = f" This is {language} {kind} type parameter in string representation."
    if kind == "any":
        message = (
            f" This parameter can be of any type of {language} object in string "
            "representation."
        )
    items = part.pop("items", None) if kind in ("ArrayList", "Array", "array") else None
    if items is not None:
        message += (
            f" The list elements are of type {items['type']}; they are not in string "
            "representation."
        )
    if kind == "dict" and "properties" in part:
        message += (
            " The dictionary entries have the following schema; they are not in "
            f"string representation. {json.dumps(part.pop('properties'))}"
        )
    part["description"] = part.get("description", "") + message
    part["type"] = "string"


def _typed(part: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an argument's schema with JSON types."""
    made = dict(part)
    if made.get("type") == "float":
        made["format"] = "float"
        message = made.get("description", "")
        made["description"] = f"{message} This is a float type value."
    return _with_json_types(made)


def _with_json_types(part: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a schema in which it and its parts have JSON types."""
    made = {**part, "type": _JSON_TYPES.get(part.get("type", ""), "string")}
    if made["type"] in ("array", "object"):
        if "properties" in part:
            made["properties"] = {n: _typed(p) for n, p in part["properties"].items()}
        elif isinstance(part.get("items"), dict):
            made["items"] = _with_json_types(part["items"])
    return made
