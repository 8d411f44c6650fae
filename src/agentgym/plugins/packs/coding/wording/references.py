"""Choose random phrases for a file or a folder; each phrase is unambiguous."""

from random import Random

from agentgym.core.task import Split
from agentgym.plugins.packs.coding.wording import REFERENCES
from agentgym.plugins.packs.wording.grammar import draw


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
