"""Run SkyPilot's command ``sky``, and parse its output."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agentgym.compute.providers.api import shortened
from agentgym.errors import ComputeError, ComputeRefusedError, UnreachableError
from agentgym.install import install_command

COMMAND = "sky"
NO_CAPACITY = "ResourcesUnavailableError"
NO_CLOUD = (
    "SkyPilot has access to no cloud: `sky check` lists the needs of each, and "
    "`pip install 'skypilot[aws]'` (or another name) installs the packages of one."
)
_NO_ACCESS = "NoCloudAccessError"
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): ?", re.MULTILINE)


def command() -> str:
    """Return the path of the program ``sky``, on PATH or next to this Python."""
    folder = Path(sys.executable).parent
    found = shutil.which(COMMAND) or shutil.which(COMMAND, path=folder)
    if found is None:
        raise ComputeError(
            "--gpu sky needs SkyPilot, whose command `sky` was not found. Install it "
            f"with: {install_command('sky')}"
        )
    return found


def answer(*words: str, timeout_s: float) -> Any:
    """Run ``sky`` with ``--output json`` and return the parsed JSON.

    Only for commands that may be repeated: after a timeout, the command runs again.

    Raises:
        ComputeRefusedError: The command failed, or printed no JSON.
        UnreachableError: The command did not answer in time.
    """
    whole = (*words, "--output", "json")
    try:
        said = run(*whole, timeout_s=timeout_s)
    except UnreachableError:
        said = run(*whole, timeout_s=timeout_s)
    return _json(said, words)


def run(*words: str, timeout_s: float) -> str:
    """Run ``sky`` and return its output.

    The command runs in a new session, so that Ctrl-C in the terminal does not reach it.
    Its output goes to a file, since the command may start SkyPilot's server, which
    would keep a pipe open.

    Raises:
        ComputeRefusedError: The command failed; ``code`` is the name of SkyPilot's
            exception.
        UnreachableError: The command did not answer in time. SkyPilot's server may
            still execute the request.
    """
    environment = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1", **os.environ}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [command(), *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UnreachableError(
                f"`sky {words[0]}` gave no answer in {timeout_s:.0f} seconds. Does "
                "`sky api info` find SkyPilot's server? `sky api stop` ends one that "
                "hangs; the next command starts another."
            ) from None
        finally:
            process.kill()
            process.wait()
        said, failed = _text(out), _text(err)
    if status:
        raise _explained(words, status, failed.strip() or said)
    return said


def _text(file: Any) -> str:
    file.seek(0)
    return _COLOURS.sub("", file.read().decode(errors="replace"))


def _json(said: str, words: tuple[str, ...]) -> Any:
    """Parse the JSON at the end of the output; ignore the text before it."""
    for start in re.finditer(r"^[\[{]", said, re.MULTILINE):
        try:
            return json.loads(said[start.start() :])
        except ValueError:
            continue
    raise ComputeRefusedError(
        f"`sky {words[0]}` printed no JSON but {shortened(said)!r}. Is it SkyPilot's, "
        "of version 0.14?",
        0,
    )


def _explained(words: tuple[str, ...], status: int, said: str) -> ComputeRefusedError:
    """Return the exception for a failed command, from the last error in its output."""
    found = [*_ERROR.finditer(said)]
    code = found[-1][1] if found else ""
    if code == _NO_ACCESS:
        return ComputeRefusedError(NO_CLOUD, status, code)
    message = shortened(said[found[-1].end() :] if found else said)
    return ComputeRefusedError(
        f"`sky {words[0]}` failed: {message or f'exit code {status}'}.", status, code
    )
