"""Read the benchmark's multi-turn entries (test cases with several user messages)."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.errors import UsageError
from agentgym.plugins.bench.bfcl.entries import Entry
from agentgym.plugins.bench.bfcl.package import NAME, Package

_FUNCTIONS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Name of the file that describes the functions of each simulated program."""
_PROMPTS = "constants/default_prompts.py"
_NEW_FUNCTIONS = "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC"


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

    def named_calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the function name and arguments of each right call of all turns."""
        every = [*self.functions, *(f for each in self.later.values() for f in each)]
        orders = {f["name"]: list(f["parameters"]["properties"]) for f in every}
        found = []
        for text in (call for turn in self.right_calls for call in turn):
            call = ast.parse(text, mode="eval").body
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                raise ValueError(f"{text!r} is not a call")
            named = zip(orders.get(call.func.id, ()), call.args, strict=False)
            arguments = {name: ast.literal_eval(value) for name, value in named}
            for keyword in call.keywords:
                arguments[str(keyword.arg)] = ast.literal_eval(keyword.value)
            found.append((call.func.id, arguments))
        return found


def read_conversations(
    package: Package, categories: Iterable[str]
) -> list[ConversationEntry]:
    """Return all entries of the given multi-turn categories."""
    described = {
        program: package.lines(f"data/multi_turn_func_doc/{file}.json")
        for program, file in _FUNCTIONS.items()
    }
    asks = _prompt(package)
    return [
        _read(package, category, line, answer, described, asks)
        for category in categories
        for line, answer in _lines(package, category)
    ]


def _lines(
    package: Package, category: str
) -> Iterable[tuple[dict[str, Any], list[list[str]]]]:
    file = f"BFCL_v4_{category}.json"
    known = package.lines(f"data/possible_answer/{file}")
    answers = {line.get("id"): line.get("ground_truth") for line in known}
    for line in package.lines(f"data/{file}"):
        if not (answer := answers.get(line.get("id"))):
            raise UsageError(
                f"{package.path}: the entry {line.get('id')!r} of {category} has no "
                f"answer in {NAME}/data/possible_answer."
            )
        yield line, answer


def _read(
    package: Package,
    category: str,
    line: dict[str, Any],
    answer: list[list[str]],
    described: Mapping[str, list[dict[str, Any]]],
    asks: str,
) -> ConversationEntry:
    try:
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
        made.named_calls()
    except (KeyError, TypeError, ValueError, SyntaxError, IndexError) as error:
        raise UsageError(
            f"{package.path}: the entry {line.get('id')!r} of {category} is not one of "
            f"BFCL v4 ({type(error).__name__}: {error})."
        ) from None
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
