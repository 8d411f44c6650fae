"""A made-up package in the shape of ``bfcl-eval``, with a checker of a few lines."""

import hashlib
import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from agentgym.scenarios.bfcl import package
from agentgym.scenarios.bfcl.entries import CATEGORIES, IRRELEVANCE, RELEVANCE

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
    entry = {
        "id": f"{category}_{number}",
        "question": [said],
        "function": [function],
    }
    calls = 2 if "parallel" in category else 1
    answer = {name: {"place": [f"P{number}", f"p{number}"], "day": ["", "Monday"]}}
    return entry, [answer] * calls


def write_package(folder: Path, count: int = 12) -> Path:
    """Write a package with so many entries of each category."""
    files = dict(CODE)
    for category in CATEGORIES:
        made = [entry(category, number) for number in range(count)]
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
    """Let the made-up checker be the known one."""
    text = "".join(CODE[name] for name in package.CHECKER)
    digest = hashlib.sha256(text.encode()).hexdigest()
    monkeypatch.setattr(package, "_CHECKER_SHA256", digest)


def _lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)
