"""Run the programs of a toolchain, and make its files readable for executions."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from agentgym.errors import SandboxError
from agentgym.sandbox.guest.settings import SYSTEM
from agentgym.sandbox.launch import published, readable_by_anyone

_ASK_S = 300.0


def ask(program: Path, *words: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program of a toolchain with the arguments ``words``; return its output."""
    ended = subprocess.run(
        [str(program), *words],
        capture_output=True,
        text=True,
        timeout=_ASK_S,
        env={**os.environ, **(variables or {})},
        stdin=subprocess.DEVNULL,
        cwd="/",
    )
    if ended.returncode:
        last = ended.stderr.strip().rpartition("\n")[2] or f"code {ended.returncode}"
        raise SandboxError(f"`{program.name} {' '.join(words)}` failed: {last}.")
    return ended.stdout.strip()


def is_of_the_system(path: Path) -> bool:
    """Return whether a path is in a system folder, which every execution can read."""
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def outside_system(*paths: Path) -> tuple[Path, ...]:
    """Return the paths that are in no system folder."""
    return tuple(path for path in paths if not is_of_the_system(path))


def readable_tree(
    tree: Path, version: str, *, reachable: bool, keep: tuple[str, ...]
) -> Path:
    """Return a toolchain's folder; if executions cannot read it, a copy of ``keep``."""
    if is_of_the_system(tree) or reachable or readable_by_anyone(tree):
        return tree

    def write(draft: Path) -> None:
        for pattern in keep:
            for path in tree.glob(pattern):
                target = draft / path.relative_to(tree)
                target.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, target, symlinks=True)
                else:
                    shutil.copy(path, target, follow_symlinks=False)
        for folder, _, _ in os.walk(draft):
            os.chmod(folder, 0o755)

    return published(tree.name, f"{tree} {version} {keep}", write)
