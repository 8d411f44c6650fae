"""One program per language that tries to get out, and one that exhausts limits.

The first prints REACHED for each thing that it reached, and refused for the others. The
second does the thing that its first argument names.
"""

from pathlib import Path

REACHES = 13
"""Attempts of each first program."""
_FOLDER = Path(__file__).with_name("programs")
_ENDINGS = {"javascript": "js", "go": "go", "rust": "rs"}


def _programs(name: str) -> dict[str, tuple[str, str]]:
    """Return path and source of a program, by language."""
    paths = {language: f"{name}.{end}" for language, end in _ENDINGS.items()}
    return {
        language: (path, (_FOLDER / path).read_text())
        for language, path in paths.items()
    }


ESCAPE = _programs("escape")
EXHAUST = _programs("exhaust")
