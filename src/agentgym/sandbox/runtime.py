"""Where the interpreter is, and a readable copy of it where it must be copied.

An interpreter below a private home directory (``/root``, say) cannot be read by the
unprivileged user id that executions run under. Bubblewrap mounts it at its place, which
avoids the question. The other rungs need a copy, which is made once per machine.
"""

import functools
import hashlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

_CACHE = Path("/var/cache/agentgym")
_LAYOUT = 2  # Raise it when the copy changes, so that old copies are not reused.
_NOT_COPIED = ("site-packages", "test", "idlelib", "tkinter", "turtledemo")
_NOT_COPIED_EITHER = ("ensurepip", "lib2to3", "config-*", "*.opt-?.pyc", "*.a")


@dataclass(frozen=True)
class Runtime:
    """An interpreter that executions can use.

    Attributes:
        executable: The interpreter.
        prefix: The tree that holds it and its library.
    """

    executable: Path
    prefix: Path


def own_runtime() -> Runtime:
    """Return this process's interpreter, without its virtual environment."""
    prefix = Path(sys.base_prefix).resolve()
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    executable = prefix / "bin" / name
    if not executable.exists():
        executable = Path(sys.executable).resolve()
    return Runtime(executable, prefix)


def readable_by_anyone(path: Path) -> bool:
    """Return whether every user can reach and read a file or folder."""
    for parent in path.resolve().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            return False
    return bool(path.stat().st_mode & stat.S_IROTH)


@functools.cache
def readable_runtime() -> Runtime:
    """Return a runtime that every user can read, copying this one if need be."""
    runtime = own_runtime()
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    if readable_by_anyone(runtime.executable) and readable_by_anyone(stdlib):
        return runtime
    identity = f"{_LAYOUT} {runtime.prefix} {sys.version} {stdlib.stat().st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = _cache_folder() / f"python-{digest}"
    if not (target.is_dir() and target.stat().st_uid == os.getuid()):
        _copy(runtime, stdlib, target)
    return Runtime(target / "bin" / runtime.executable.name, target)


def _cache_folder() -> Path:
    """Return a folder of ours that every user can read and only we can write."""
    try:
        _CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        owner = _CACHE.stat().st_uid
    except OSError:
        owner = -1
    if owner == os.getuid() and readable_by_anyone(_CACHE):
        return _CACHE
    folder = Path(tempfile.mkdtemp(prefix="agentgym-python-"))
    folder.chmod(0o755)
    return folder


def _copy(runtime: Runtime, stdlib: Path, target: Path) -> None:
    """Copy interpreter, shared library and standard library, then publish at once."""
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    draft.chmod(0o755)
    (draft / "bin").mkdir()
    shutil.copy(runtime.executable, draft / "bin" / runtime.executable.name)
    for name in {"python", "python3"} - {runtime.executable.name}:
        (draft / "bin" / name).symlink_to(runtime.executable.name)
    relative = stdlib.relative_to(runtime.prefix)
    skipped = shutil.ignore_patterns(*_NOT_COPIED, *_NOT_COPIED_EITHER)
    shutil.copytree(stdlib, draft / relative, ignore=skipped)
    for library in (runtime.prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, draft / "lib" / library.name, follow_symlinks=False)
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
        if not target.is_dir():
            raise
