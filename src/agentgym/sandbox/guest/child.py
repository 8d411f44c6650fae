"""Run one execution in a forked process, and report the results to the host."""

import atexit
import importlib
import itertools
import json
import os
import signal
import stat
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import suppress
from os import _exit  # Imported early, because a program may replace ``os._exit``.
from typing import Any, NoReturn, TextIO

from . import libc, steps, testrun
from .box import Box
from .confine import confine
from .settings import ZygoteSettings

_REPORT_FD = 3
_SETUP_FAILED = 125
_KEEP_IMPORTED = frozenset({"os", "sys", "site", "builtins", "io", "codecs", "abc"})
_MOST_FILES = 1000
_LONGEST_NAME = 1000
_OURS = os.path.dirname(__file__)


def execute(
    settings: ZygoteSettings, box: Box, timeout_s: float, files: list[int]
) -> NoReturn:
    """Run one execution, then exit.

    ``files`` are for payload, stdout, stderr and report.
    """
    given, out, err, report = files
    code = _SETUP_FAILED
    try:
        streams = {out: 1, err: 2, report: _REPORT_FD}
        payload = _enter(settings, box, timeout_s, given, streams)
        _write_files(payload["files"])
        os.environ.update(HOME=box.workspace, TMPDIR=box.temporary, PWD=box.workspace)
        if payload["command"]["kind"] in ("Argv", "Steps"):
            _prepare_tools(settings, box.temporary)
        sys.stdout, sys.stderr = _text_stream(1), _text_stream(2)
        _report({"ready": True})
    except BaseException as error:  # noqa: BLE001 - whatever it is, run nothing
        _report({"setup_error": f"{type(error).__name__}: {error}"})
        _exit(code)
    try:
        code = _run(payload["command"], box.temporary)
    except BaseException as error:  # noqa: BLE001 - the program's own, to be shown
        code = _exit_code(error)
    finally:
        with suppress(BaseException):
            _finish()
        _exit(code)


def collect(
    settings: ZygoteSettings, box: Box, timeout_s: float, files: list[int]
) -> NoReturn:
    """Send the host the text files that an execution changed, then exit."""
    given, _, _, report = files
    try:
        payload = _enter(settings, box, timeout_s, given, {report: _REPORT_FD})
        most = settings.limits.collect_bytes
        _report({"left": _read_changes(payload["files"], most)})
    finally:
        _exit(0)


def _enter(
    settings: ZygoteSettings,
    box: Box,
    timeout_s: float,
    given: int,
    streams: dict[int, int],
) -> dict[str, Any]:
    """Redirect the streams and give up all rights; return the files and the command."""
    with open(given, "rb") as source:
        source.seek(0)
        payload: dict[str, Any] = json.load(source)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, target in streams.items():
        os.dup2(descriptor, target, inheritable=target != _REPORT_FD)
    os.closerange(_REPORT_FD + 1, 1 << 16)
    if settings.group is not None:
        _die_first()
    confine(settings, timeout_s, (box.workspace, box.temporary))
    os.chdir(box.workspace)
    return payload


def _die_first() -> None:
    """Make the kernel kill this process, not its parent, if memory runs out."""
    if sys.platform == "linux":
        libc.prctl(libc.PR_SET_DUMPABLE, 1)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _write_files(files: dict[str, str]) -> None:
    for name, text in files.items():
        if folder := os.path.dirname(name):
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as target:
            target.write(_encoded(text))


def _read_changes(given: dict[str, str], max_bytes: int) -> dict[str, Any]:
    """Return the changed texts, by path, and the removed files of the workspace.

    Files are left out if they are not UTF-8, or exceed ``max_bytes`` in total.
    """
    files: dict[str, str] = {}
    names = list(itertools.islice(_names(), _MOST_FILES + 1))
    for name in names[:_MOST_FILES]:
        if len(name) > _LONGEST_NAME:
            continue
        was = _encoded(given[name]) if name in given else None
        with suppress(OSError, UnicodeError):
            data = _read_regular(name, max(max_bytes, len(was or b"")))
            if data is not None and data != was and len(data) <= max_bytes:
                name.encode()
                files[name] = data.decode()
                max_bytes -= len(data)
    gone = sorted(name for name in given if not _is_left(name))
    return {"files": files, "gone": gone}


def _encoded(text: str) -> bytes:
    """Encode a text as UTF-8; lone surrogates are allowed."""
    return text.encode("utf-8", "surrogatepass")


def _is_left(name: str) -> bool:
    """Return whether a file exists, and is not behind a new symbolic link."""
    folder = os.path.dirname(os.path.join(os.getcwd(), name))
    is_ours = os.path.realpath(folder) == folder
    return is_ours and os.path.lexists(name) and not os.path.isdir(name)


def _names() -> Iterator[str]:
    """Yield the relative path of each file in the workspace, except ``__pycache__``."""
    for folder, folders, names in os.walk("."):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            yield os.path.normpath(os.path.join(folder, name))


def _read_regular(path: str, max_bytes: int) -> bytes | None:
    """Return a regular file's bytes; None for other or larger files."""
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
        return None
    with open(path, "rb") as source:
        return source.read()


def _text_stream(descriptor: int) -> TextIO:
    return open(descriptor, "w", 1, "utf-8", "backslashreplace", closefd=False)


def _prepare_tools(settings: ZygoteSettings, temporary: str) -> None:
    for name, value in settings.variables.items():
        os.environ[name] = value.replace("{tmp}", temporary)
    for name, source in settings.layers.items():
        folder = os.path.join(temporary, name)
        os.mkdir(folder)
        for entry in os.listdir(source):
            os.symlink(os.path.join(source, entry), os.path.join(folder, entry))


def _run(command: dict[str, Any], temporary: str) -> int:
    workspace = os.getcwd()
    match command:
        case {"kind": "Argv", "argv": argv}:
            return _replace(argv)
        case {"kind": "Steps"}:
            return steps.run(command, temporary, _report, _replace)
        case {"kind": "RunTests", "paths": paths, "select": select}:
            source = os.path.join(workspace, "src")
            _put_first([workspace, *([source] if os.path.isdir(source) else [])])
            return testrun.run(paths, select, _report)
        case {"kind": "PythonScript", "path": path, "args": args}:
            folder = os.path.join(workspace, os.path.dirname(path))
            _put_first([os.path.normpath(folder)])
            return _run_script(path, args)
    raise ValueError(f"the host sent no command but {command!r}")


def _replace(argv: list[str]) -> int:
    """Replace this process by the program ``argv``; return 126 or 127 on failure."""
    program = sys.executable if argv[0] in ("python", "python3") else argv[0]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Only Python ignores this signal.
    try:
        os.execvp(program, argv)
    except (OSError, ValueError) as error:  # e.g. for a NUL character
        why = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"{argv[0]}: {why}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def _put_first(folders: list[str]) -> None:
    """Put folders first in ``sys.path``; unload modules that they replace."""
    sys.path[:0] = folders
    kept = _KEEP_IMPORTED.union(sys.builtin_module_names)
    for folder in folders:
        for name in os.listdir(folder):
            module = name.removesuffix(".py")
            if module not in kept:
                sys.modules.pop(module, None)
    importlib.invalidate_caches()


def _run_script(script: str, args: list[str]) -> int:
    """Run a file as ``__main__``, like ``python script args``; return 0."""
    sys.argv = [script, *args]
    with open(script, "rb") as source:
        code = compile(source.read(), script, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)
    return 0


def _exit_code(error: BaseException) -> int:
    """Print the exception that ended a program as Python does; return its exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        with suppress(BaseException):
            sys.stderr.write(f"{error.code}\n")
        return 1
    frames = error.__traceback__
    while frames and os.path.dirname(frames.tb_frame.f_code.co_filename) == _OURS:
        frames = frames.tb_next
    with suppress(BaseException):
        sys.__excepthook__(type(error), error.with_traceback(frames), frames)
    return 1


def _finish() -> None:
    """Join threads, run exit handlers and flush output, as Python does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            with suppress(BaseException):
                thread.join()
    with suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()


def _report(line: dict[str, Any]) -> None:
    """Send the host a line of the report; ignore a closed pipe."""
    data = json.dumps(line).encode() + b"\n"
    with suppress(OSError):
        while data:
            data = data[os.write(_REPORT_FD, data) :]
