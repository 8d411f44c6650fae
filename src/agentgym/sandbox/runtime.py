"""Where the interpreter is, and a readable copy of it where it must be copied.

An interpreter below a private home directory (``/root``, say) cannot be read by the
unprivileged user id that executions run under. Bubblewrap mounts it at its place, which
avoids the question. The other rungs need a copy, which is made once per machine.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from pathlib import Path

_CACHE = Path("/var/cache/agentgym")
_LAYOUT = 2  # Raise it when the copy changes, so that old copies are not reused.
_NOT_COPIED = """
site-packages test idlelib tkinter turtledemo ensurepip lib2to3 config-* *.opt-?.pyc *.a
"""


def own_python() -> Path:
    """Return this process's interpreter, without its virtual environment."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    python = Path(sys.base_prefix).resolve() / "bin" / name
    return python if python.exists() else Path(sys.executable).resolve()


def readable_by_anyone(path: Path) -> bool:
    """Return whether every user can reach and read a file or folder."""
    parents = path.resolve().parents
    reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in parents)
    return reachable and bool(path.stat().st_mode & stat.S_IROTH)


@functools.cache
def readable_python() -> Path:
    """Return an interpreter that every user can read, copying this one if need be."""
    python = own_python()
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    if readable_by_anyone(python) and readable_by_anyone(stdlib):
        return python
    prefix = python.parents[1]
    identity = f"{_LAYOUT} {prefix} {sys.version} {stdlib.stat().st_mtime_ns}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    target = _cache_folder() / f"python-{digest}"
    if not (target.is_dir() and target.stat().st_uid == os.getuid()):
        _copy(python, stdlib, target)
    return target / "bin" / python.name


def _cache_folder() -> Path:
    """Return a folder of ours that every user can read and only we can write."""
    with contextlib.suppress(OSError):
        _CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        if _CACHE.stat().st_uid == os.getuid() and readable_by_anyone(_CACHE):
            return _CACHE
    folder = Path(tempfile.mkdtemp(prefix="agentgym-python-"))
    folder.chmod(0o755)
    return folder


def _copy(python: Path, stdlib: Path, target: Path) -> None:
    """Copy interpreter, shared library and standard library, then publish at once."""
    prefix = python.parents[1]
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    draft.chmod(0o755)
    (draft / "bin").mkdir()
    shutil.copy(python, draft / "bin" / python.name)
    for name in {"python", "python3"} - {python.name}:
        (draft / "bin" / name).symlink_to(python.name)
    skipped = shutil.ignore_patterns(*_NOT_COPIED.split())
    shutil.copytree(stdlib, draft / stdlib.relative_to(prefix), ignore=skipped)
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, draft / "lib" / library.name, follow_symlinks=False)
    try:
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft)
        if not target.is_dir():
            raise
