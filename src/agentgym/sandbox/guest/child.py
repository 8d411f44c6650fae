"""The forked side of one execution: confine, write the files, run, report, exit."""

import atexit
import contextlib
import importlib
import io
import itertools
import json
import os
import signal
import stat
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import confine, testrun
from .box import Box

REPORT_FD = 3
SETUP_FAILED = 125
_KEEP_IMPORTED = frozenset({"os", "sys", "site", "builtins", "io", "codecs", "abc"})
_MOST_FILES = 1000


def execute(
    *,
    files: tuple[int, int, int, int],
    box: Box,
    confinement: confine.Confinement,
    limits: dict[str, int],
    path: list[str],
) -> NoReturn:
    """Run one execution in this process and exit.

    Args:
        files: Descriptors of the payload, stdout, stderr and the report.
        box: Where the execution may write.
        confinement: What it gives up first.
        limits: Resource limits by name.
        path: ``sys.path`` behind the workspace.
    """
    code = SETUP_FAILED
    try:
        payload = _take_over(files)
        confine.set_limits(limits)
        confine.drop_identity(confinement)
        os.chdir(box.workspace)
        _write_files(payload["files"])
        confine.lock(confinement, (box.workspace, box.temporary))
        _set_environment(payload, box)
        _report({"ready": True})
    except BaseException as error:  # noqa: BLE001 - whatever it is, run nothing
        _report({"setup_error": f"{type(error).__name__}: {error}"})
        os._exit(code)
    try:
        code = _run(payload, path)
    except BaseException as error:  # noqa: BLE001 - the program's own, to be shown
        code = _exit_code(error)
    finally:
        _finish(code)


def collect(
    *,
    files: tuple[int, int],
    box: Box,
    confinement: confine.Confinement,
    limits: dict[str, int],
    max_bytes: int,
) -> NoReturn:
    """Report the text files that the execution changed, and exit.

    Args:
        files: Descriptors of the payload and the report.
        box: Where the execution could write.
        confinement: What to give up first.
        limits: Resource limits by name.
        max_bytes: How much text to report.
    """
    payload, report = files
    try:
        given = _read_payload(payload)["files"]
        os.dup2(report, REPORT_FD, inheritable=False)
        os.closerange(REPORT_FD + 1, 1 << 16)
        confine.set_limits(limits)
        confine.drop_identity(confinement)
        os.chdir(box.workspace)
        confine.lock(confinement, (box.workspace,))
        _report({"left": _read_changes(given, max_bytes)})
    finally:
        os._exit(0)


def _take_over(files: tuple[int, int, int, int]) -> dict[str, Any]:
    """Read the payload, move the pipes to 1, 2 and 3, close everything else."""
    payload_fd, out, err, report = files
    payload = _read_payload(payload_fd)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for source_fd, target in ((out, 1), (err, 2), (report, REPORT_FD)):
        os.dup2(source_fd, target, inheritable=target != REPORT_FD)
    os.closerange(REPORT_FD + 1, 1 << 16)
    return payload


def _read_payload(descriptor: int) -> dict[str, Any]:
    """Read the payload from its start, and close it."""
    with open(descriptor, "rb") as source:
        source.seek(0)
        payload: dict[str, Any] = json.loads(source.read())
        return payload


def _write_files(files: dict[str, str]) -> None:
    """Write the files below the working directory."""
    for name, text in files.items():
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, "w", encoding="utf-8", newline="") as target:
            target.write(text)


def _read_changes(given: dict[str, str], max_bytes: int) -> dict[str, Any]:
    """Compare what is below the working directory with what was given.

    Returns:
        ``files``: UTF-8 regular files that differ and their whole text, as many as
        fit into ``max_bytes``; ``gone``: names given that are no longer there.
    """
    files: dict[str, str] = {}
    names = list(itertools.islice(_names(), _MOST_FILES + 1))
    for name in names[:_MOST_FILES]:
        was = given[name].encode() if name in given else None
        with contextlib.suppress(OSError, UnicodeError):
            data = _read_regular(name, max(max_bytes, len(was or b"")))
            if data is None or data == was or len(data) > max_bytes:
                continue
            name.encode()
            files[name] = data.decode()
            max_bytes -= len(data)
    gone = sorted(given.keys() - set(names)) if len(names) <= _MOST_FILES else []
    return {"files": files, "gone": gone}


def _names() -> Iterator[str]:
    """Yield the path of everything below the working directory but its folders."""
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            yield os.path.normpath(os.path.join(folder, name))


def _read_regular(path: str, max_bytes: int) -> bytes | None:
    """Return a regular file's bytes, None for anything else or if it has more."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        return None
    with open(path, "rb") as source:
        return source.read()


def _set_environment(payload: dict[str, Any], box: Box) -> None:
    """Give the execution its own environment and interpreter state."""
    os.environ.clear()
    os.environ.update(payload["env"])
    os.environ.update(HOME=box.workspace, TMPDIR=box.temporary, PWD=box.workspace)
    sys.stdout = _text_stream(1)
    sys.stderr = _text_stream(2)


def _text_stream(descriptor: int) -> io.TextIOWrapper:
    """Return a line-buffered stream that writes whatever it is given."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
    )


def _run(payload: dict[str, Any], path: list[str]) -> int:
    """Run the command and return its exit code."""
    command = payload["command"]
    if command["kind"] == "argv":
        return _replace(command["argv"])
    workspace = os.getcwd()
    if command["kind"] == "tests":
        first = [workspace]
        if os.path.isdir("src"):
            first.append(os.path.join(workspace, "src"))
        _put_first(first, path)
        return testrun.run(command["files"], command["select"], _report)
    script: str = command["path"]
    folder = os.path.normpath(os.path.join(workspace, os.path.dirname(script)))
    _put_first([folder], path)
    return _run_script(script, command["args"])


def _replace(argv: list[str]) -> int:
    """Become another program; return an exit code, as a shell does, if it fails."""
    program = sys.executable if argv[0] in ("python", "python3") else argv[0]
    try:
        os.execvp(program, argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _put_first(folders: list[str], path: list[str]) -> None:
    """Set ``sys.path``, and forget preloaded modules that these folders shadow."""
    sys.path[:] = [*folders, *path]
    kept = _KEEP_IMPORTED.union(sys.builtin_module_names)
    for folder in folders:
        for name in os.listdir(folder):
            module = name.removesuffix(".py")
            if module not in kept:
                sys.modules.pop(module, None)
    importlib.invalidate_caches()


def _run_script(script: str, args: list[str]) -> int:
    """Run a file as ``__main__``, as ``python script args`` would."""
    sys.argv = [script, *args]
    with open(script, "rb") as source:
        code = compile(source.read(), script, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)
    return 0


def _exit_code(error: BaseException) -> int:
    """Return the exit code for what ended the program, and print it as Python does."""
    if isinstance(error, SystemExit):
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        _quietly(lambda: sys.stderr.write(f"{error.code}\n"))
        return 1
    frames = error.__traceback__
    while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    shown = error.with_traceback(frames)
    _quietly(lambda: sys.__excepthook__(type(error), shown, frames))
    return 1


def _is_ours(filename: str) -> bool:
    """Return whether a frame belongs to the guest's own modules."""
    return os.path.dirname(filename) == os.path.dirname(__file__)


def _finish(code: int) -> NoReturn:
    """Run exit handlers, flush, and exit without the interpreter's long way out."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            _quietly(thread.join)
    _quietly(atexit._run_exitfuncs)
    for stream in (sys.stdout, sys.stderr):
        _quietly(stream.flush)
    os._exit(code)


def _quietly(call: Callable[[], object]) -> None:
    """Call, and let nothing that the program broke stop the exit."""
    try:
        call()
    except BaseException:  # noqa: BLE001 - see above
        return


def _report(line: dict[str, Any]) -> None:
    """Send one line to the host; a program that closed the pipe loses its report."""
    data = json.dumps(line).encode() + b"\n"
    try:
        while data:
            data = data[os.write(REPORT_FD, data) :]
    except OSError:
        return
