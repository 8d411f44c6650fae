"""The words that docstrings, comments and messages may not use, and why.

Readers know LangChain or PyTorch, have never seen AgentGym, and often read English
as a second language. Each pattern is a turn of phrase that they had to read twice.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "agentgym"
PATTERNS = {
    "say, report or describe, not tell": r"\b(told|tell|tells|telling)\b",
    "a name for the thing, not a clause with what": r"\bwhat (?!to\b)[^.?]*(?![^.]*\?)",
    "is not a, not is no": (
        r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|later)\b"
    ),
    "a noun, not a pronoun for people": r"\b(nobody|somebody|whoever)\b",
    "again or new, not anew": r"\banew\b",
    "finally or at the end, not at last": r"\bat last\b",
    "instead of": r"\bin the place of\b",
    "next to, with or besides": r"\bbeside\b",
    "client, not home": r"\b(at|is|are|from|to) home\b(?! (folder|director))",
    "remote, not there": (
        r"\b(from|of|over|ran|run|runs|is|are|was|be|not|up|out) there\b"
        r"(?! (is|are|was|were|may|can|must|will))"
    ),
    "local or this, not here": r"\b(from|of|is|are|was|be|not|lies|kept) here\b",
    "routed, patched or trained, not led or taught": (
        r"\b(led|lead|leads|teach|teaches|taught)\b"
    ),
}
DOCSTRING = {"the name of the field, not Of the": r"\A\s*Of (the|a|an)\b"}
DATA = ("scenarios", "packs", "bench", "team", "logs")
"""Folders whose strings are mostly tasks for a model: only raised errors count."""
PROMPTS = ("agents.py", "crews.py")
"""Files with texts that a model reads: a change would change how it answers."""


class Hit(NamedTuple):
    """A phrase that a reader would have to read twice."""

    path: str
    line: int
    rule: str
    text: str


def strings(tree: ast.AST) -> tuple[list[ast.Constant], list[ast.Constant]]:
    """Return the strings that stand alone, i.e. docstrings, and all others of words."""
    apart, others = dict[int, ast.Constant](), list[ast.Constant]()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                apart[id(text)] = text  # comes before the text itself
            case ast.Constant(value=str() as words) if id(node) not in apart:
                if len(words.split()) > 1:
                    others.append(node)
    return list(apart.values()), others


def raised(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is raised: the messages of errors."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.AST() as error):
                yield error


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield each text for readers with its line, and whether it is a docstring."""
    source = path.read_text()
    tree = ast.parse(source)
    apart, others = strings(tree)
    for node in apart:
        yield node.lineno, str(node.value), True
    if set(DATA) & set(path.relative_to(ROOT).parts) or path.name in PROMPTS:
        others = [node for part in raised(tree) for node in strings(part)[1]]
    for node in others:
        yield node.lineno, str(node.value), False
    for line, text in comments(source):
        yield line, text, False


def hits(path: Path) -> Iterator[Hit]:
    """Yield each phrase in a file that a pattern refuses."""
    name = path.relative_to(ROOT).as_posix()
    for line, text, docstring in texts(path):
        flat = re.sub(r"``.*?``|`[^`]*`|(?<=, )\*[A-Z][^*]+\*", "``", text)
        for rule, pattern in (PATTERNS | (DOCSTRING if docstring else {})).items():
            for match in re.finditer(pattern, flat, re.IGNORECASE):
                line_of = line + flat[: match.start()].count("\n")
                start = max(0, match.start() - 40)
                yield Hit(name, line_of, rule, flat[start : match.end() + 30])


def packages() -> list[str]:
    """Return the packages and modules at the top of the source."""
    return sorted(path.name for path in SOURCE.iterdir() if path.suffix in ("", ".py"))


@pytest.mark.parametrize("name", packages())
def test_texts_for_readers_use_plain_words(name: str) -> None:
    place = SOURCE / name
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    found = [hit for path in files for hit in hits(path)]
    shown = "\n".join(f"{h.path}:{h.line}: {h.text!r} ({h.rule})" for h in found[:20])
    assert not found, shown


@pytest.mark.slow
def test_a_public_class_name_stands_once() -> None:
    """Two classes of one name: a search for it, or an import, finds the wrong one."""
    files: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if "__pycache__" in path.parts:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def test_each_pattern_finds_its_phrase() -> None:
    texts = (
        "Return what holds.",
        "Say what was told.",
        "It is no list, and nobody may run there.",
        "Begin anew at last, beside it, from here.",
        "Led by another in the place of the model, at home.",
    )
    found = {
        rule
        for text in texts
        for rule, pattern in PATTERNS.items()
        if re.search(pattern, text, re.IGNORECASE)
    }
    assert found == set(PATTERNS)
    assert not re.search(PATTERNS["is not a, not is no"], "where there is no file")
