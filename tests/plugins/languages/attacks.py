"""One program per language that tries to get out, and one that exhausts limits.

The first prints REACHED for each thing that it reached, and refused for the others. The
second does the thing that its first argument names.
"""

from pathlib import Path

REACHES = 13
"""Attempts of each first program."""
_FOLDER = Path(__file__).with_name("programs")
_FILES = {
    "javascript": "%s.js",
    "go": "%s.go",
    "rust": "%s.rs",
    "cpp": "%s.cpp",
    "java": "%s.java",
}
_AS_MODULE = """// @ts-nocheck
import { createRequire } from 'node:module';
const require = createRequire('/');
"""


def _programs(name: str) -> dict[str, tuple[str, str]]:
    """Return path and source of a program, by language."""
    found = {}
    for language, pattern in _FILES.items():
        path = pattern % (name.title() if language == "java" else name)
        found[language] = path, (_FOLDER / path).read_text()
    script = _AS_MODULE + found["javascript"][1]
    return {**found, "typescript": (f"{name}.ts", script)}


ESCAPE = _programs("escape")
EXHAUST = _programs("exhaust")
