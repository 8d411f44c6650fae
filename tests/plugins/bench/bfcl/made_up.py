"""A made-up package in the shape of ``bfcl-eval``, with a checker of a few lines."""

import hashlib
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from agentgym.plugins.bench.bfcl import package
from agentgym.plugins.bench.bfcl.entries import (
    CATEGORIES,
    IRRELEVANCE,
    RELEVANCE,
    SINGLE_TURN,
)

CODE = {
    "constants/enums.py": """
from enum import Enum


class Language(Enum):
    PYTHON = "python"
    JAVA = "java"
    JAVASCRIPT = "javascript"
""",
    "constants/type_mappings.py": "KINDS = {}",
    "eval_checker/ast_eval/type_convertor/java_type_converter.py": "",
    "eval_checker/ast_eval/type_convertor/js_type_converter.py": "",
    "eval_checker/ast_eval/ast_checker.py": """
from bfcl_eval.constants.enums import Language
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING


def find_description(functions, name):
    return next(f for f in functions if f["name"] == name)


def simple_function_checker(function, made, answer, language, model):
    assert isinstance(language, Language)
    assert MODEL_CONFIG_MAPPING[model].underscore_to_dot
    [(name, accepted)] = answer.items()
    given = made.get(name.replace(".", "_"))
    valid = given is not None and all(
        given.get(key, "") in values for key, values in accepted.items()
    )
    return {"valid": valid and set(given) <= set(accepted)}


def ast_checker(functions, made, answers, language, category, model):
    if len(made) != len(answers):
        return {"valid": False}
    pairs = zip(made, answers)
    results = [simple_function_checker(None, m, a, language, model) for m, a in pairs]
    return {"valid": all(result["valid"] for result in results)}
""",
}


_PLACE = "eval_checker/multi_turn_eval"
PROGRAMS = {
    **dict.fromkeys(package.PROGRAMS, ""),
    f"{_PLACE}/multi_turn_utils.py": """
class TicketAPI:
    def __init__(self):
        self.open = []

    def create_ticket(self, title):
        self.open.append(title)
        return {"id": len(self.open)}

    def close_ticket(self, ticket_id):
        del self.open[ticket_id - 1]
        return {"closed": True}


_PROGRAMS = {}


def execute_multi_turn_func_call(
    func_call_list, initial_config, involved_classes, model_name, test_entry_id,
    long_context=False, is_evaL_run=False,
):
    program = _PROGRAMS.setdefault(model_name, TicketAPI())
    results = []
    for call in func_call_list:
        try:
            results.append(str(eval(f"program.{call}")))
        except Exception as error:
            results.append(f"Error during execution: {error}")
    return results, {"TicketAPI": program}
""",
    f"{_PLACE}/multi_turn_checker.py": """
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import (
    execute_multi_turn_func_call,
)


def multi_turn_checker(made, answers, entry, category, model):
    for steps, right in zip(made, answers):
        if right and not steps:
            return {"valid": False}
        states = []
        for who, calls in (("model", sum(steps, [])), ("right", right)):
            _, programs = execute_multi_turn_func_call(
                calls, {}, ["TicketAPI"], who, entry["id"]
            )
            states.append(programs["TicketAPI"].open)
        if right and states[0] != states[1]:
            return {"valid": False}
    return {"valid": True}
""",
}
_FILES = [
    Path(name).stem
    for name in package.PROGRAMS
    if "func_source_code" in name and "long_context" not in name
]
_TICKETS = [
    {
        "name": name,
        "description": f"{name}.",
        "parameters": {
            "type": "dict",
            "properties": {argument: {"type": kind, "description": "Which."}},
            "required": [argument],
        },
    }
    for name, argument, kind in (
        ("create_ticket", "title", "string"),
        ("close_ticket", "ticket_id", "integer"),
    )
]


def conversation(category: str, number: int) -> tuple[dict[str, Any], list[Any]]:
    """Return an entry of several turns, and its answers."""
    texts = [[f"Open T{number}."], ["Close it."]]
    right = [[f"create_ticket('T{number}')"], ["close_ticket(ticket_id=1)"]]
    entry = {
        "id": f"{category}_{number}",
        "initial_config": {},
        "involved_classes": ["TicketAPI"],
    }
    if category == "multi_turn_miss_func":
        texts.append([])
        right.insert(1, [])
        entry["missed_function"] = {"2": ["close_ticket"]}
    if category == "multi_turn_miss_param":
        texts.append(["The first one."])
        right.insert(1, [])
    entry["question"] = [[{"role": "user", "content": t} for t in n] for n in texts]
    return entry, right


def entry(category: str, number: int) -> tuple[dict[str, Any], list[Any]]:
    """Return an entry of a category, with a function of its own, and its answers."""
    kind = "String" if "java" in category else "string"
    schema = {
        "type": "dict",
        "properties": {
            "place": {"type": kind, "description": "Where."},
            "day": {"type": kind, "description": "When."},
        },
        "required": ["place"],
    }
    name = f"{category}.book_{number}"
    function = {"name": name, "description": "Book.", "parameters": schema}
    said = [{"role": "user", "content": f"{category}: a table in P{number}, please."}]
    if category == "live_simple":
        said.insert(0, {"role": "system", "content": "Be quick."})
    entry = {"id": f"{category}_{number}", "question": [said], "function": [function]}
    calls = 2 if "parallel" in category else 1
    answer = {name: {"place": [f"P{number}", f"p{number}"], "day": ["", "Monday"]}}
    return entry, [answer] * calls


def write_package(folder: Path, count: int = 12) -> Path:
    """Write a package with so many entries of each category."""
    files = {**CODE, **PROGRAMS}
    prompt = 'DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = ("There are more.")'
    files["constants/default_prompts.py"] = prompt
    for name in _FILES:
        told = _TICKETS if name == "ticket_api" else []
        files[f"data/multi_turn_func_doc/{name}.json"] = _lines(told)
    for category in CATEGORIES:
        kind = entry if category in SINGLE_TURN else conversation
        made = [kind(category, number) for number in range(count)]
        files[f"data/BFCL_v4_{category}.json"] = _lines([e for e, _ in made])
        if category not in (*IRRELEVANCE, RELEVANCE):
            answers = [{"id": e["id"], "ground_truth": a} for e, a in made]
            files[f"data/possible_answer/BFCL_v4_{category}.json"] = _lines(answers)
    for name, text in files.items():
        path = folder / package.NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def zipped(folder: Path, wheel: Path, version: str = package.VERSION) -> Path:
    """Write a folder's package as a wheel."""
    with ZipFile(wheel, "w") as archive:
        for path in sorted((folder / package.NAME).rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
        archive.writestr(f"{package.NAME}-{version}.dist-info/METADATA", "")
    return wheel


def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the made-up checker and programs be the known ones."""
    for names, made, known in (
        (package.CHECKER, CODE, "_CHECKER_SHA256"),
        (package.PROGRAMS, PROGRAMS, "_PROGRAMS_SHA256"),
    ):
        text = "".join(made[name] for name in names)
        digest = hashlib.sha256(text.encode()).hexdigest()
        monkeypatch.setattr(package, known, digest)


def _lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)
