"""Phrases of requests, and unambiguous phrases for files and folders."""

from pathlib import Path

from agentgym.packs.kit.phrases import Forms, Phrases, read_pools
from agentgym.packs.kit.tasks import Scene

from .names import Names
from .projects import Module

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""Sections of the text files with phrases for files; the others have requests."""

_POOLS = read_pools(Path(__file__).parent / "wording")
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""Phrases of the requests, by family (kind of task)."""


def refer(scene: Scene[Names], form: str, **slots: str) -> str:
    """Return a random phrase for a file or folder; ``form`` is one of ``FORMS``."""
    return scene.say(REFERENCES[form], **slots)


def refer_to_module(scene: Scene[Names], module: Module) -> str:
    """Return a random phrase for a module."""
    return refer(scene, "module", p=module.package, m=module.name)
