"""Phrases of requests, and unambiguous phrases for files and folders."""

from pathlib import Path
from random import Random

from agentgym.core.task import Split
from agentgym.packs.kit.phrases import Forms, Phrases, draw, read_pools

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""Sections of the text files with phrases for files; the others have requests."""

_POOLS = read_pools(Path(__file__).parent / "wording")
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""Phrases of the requests, by family (kind of task)."""


def module(rng: Random, split: Split, package: str, name: str) -> str:
    """Return a random phrase for the module ``package/name.py``."""
    return draw(rng, split, REFERENCES["module"]).format(p=package, m=name)


def test_file(rng: Random, split: Split, name: str) -> str:
    """Return a random phrase for the file ``tests/test_name.py``."""
    return draw(rng, split, REFERENCES["tests"]).format(m=name)


def tests_of(rng: Random, split: Split, name: str) -> str:
    """Return a random phrase for the tests in ``tests/test_name.py``."""
    return draw(rng, split, REFERENCES["tests_of"]).format(m=name)


def script(rng: Random, split: Split, path: str) -> str:
    """Return a random phrase for the script at ``path``."""
    return draw(rng, split, REFERENCES["script"]).format(s=path.removesuffix(".py"))


def folder(rng: Random, split: Split, path: str) -> str:
    """Return a random phrase for a folder; ``"."`` is the whole project."""
    if path == ".":
        return draw(rng, split, REFERENCES["root"])
    return draw(rng, split, REFERENCES["folder"]).format(d=path)
