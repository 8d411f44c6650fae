"""Download and read the benchmark's package ``bfcl-eval``, without installing it.

Only its checker and its simulated programs are run, so its dependencies are not needed.
The files of both must be those of one known version.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from agentgym.core.files import agents_folder, new_folder, require_writable_state
from agentgym.errors import AgentGymError, UsageError

DISTRIBUTION, VERSION = "bfcl-eval", "2026.3.23"
NAME = "bfcl_eval"
FETCH = "agentgym scenarios fetch bfcl"

CHECKER = (
    "constants/enums.py",
    "constants/type_mappings.py",
    "eval_checker/ast_eval/ast_checker.py",
    "eval_checker/ast_eval/type_convertor/java_type_converter.py",
    "eval_checker/ast_eval/type_convertor/js_type_converter.py",
)
"""The files of the package that run in this process: the checker."""
PROGRAM_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Name of the file of each simulated program."""
PROGRAMS = (
    "constants/executable_backend_config.py",
    "eval_checker/multi_turn_eval/multi_turn_checker.py",
    "eval_checker/multi_turn_eval/multi_turn_utils.py",
    *(
        f"eval_checker/multi_turn_eval/func_source_code/{name}.py"
        for name in sorted([*PROGRAM_FILES.values(), "long_context"])
    ),
)
"""The files that run in the sandbox: simulated programs, and their checker."""
_PROGRAMS_SHA256 = "cba8ddb781d2f46bc2a4ccf7ff93f1459b86e9e937d1f4187c12ab46226d23be"
_CHECKER_SHA256 = "001d97018a5209a2b26f9bc72d4391eb004dc5a6a5234d8f9e91f06808c19356"
_WHEEL_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
_SECONDS = 300


class Package:
    """The files of ``bfcl-eval``, in a wheel or a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = self._find(path)
        self._require("checkers", CHECKER, _CHECKER_SHA256)

    @classmethod
    def at(cls, data: str) -> "Package":
        """Return the package at a path; an empty path means the downloaded package."""
        if not data and not fetched().is_dir():
            raise UsageError(
                f"The data of BFCL v4 are not on this machine. Fetch them once (2 MB "
                f"from the package index): {FETCH}. Or name a wheel or folder of "
                f"{DISTRIBUTION} {VERSION}: --data PATH."
            )
        return cls(Path(data) if data else fetched())

    def require_programs(self) -> None:
        """Check that the simulated programs are those of the known version."""
        self._require("multi-turn programs", PROGRAMS, _PROGRAMS_SHA256)

    def _require(self, kind: str, files: Sequence[str], digest: str) -> None:
        found = hashlib.sha256(b"".join(map(self._bytes, files))).hexdigest()
        if found != digest:
            raise UsageError(
                f"{self.path} has other {kind} than {DISTRIBUTION} {VERSION}, whose "
                f"verdicts are known. Get that version: {FETCH}."
            )

    def text(self, name: str) -> str:
        """Return the text of the file at the path ``name`` in the package."""
        return self._bytes(name).decode()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in the package's JSON Lines file ``name``."""
        try:
            return [
                json.loads(line) for line in self.text(name).split("\n") if line.strip()
            ]
        except ValueError as error:
            raise UsageError(f"{self.path}: {NAME}/{name}: {error}.") from None

    def _bytes(self, name: str) -> bytes:
        try:
            return self._root.joinpath(*name.split("/")).read_bytes()
        except (OSError, KeyError, zipfile.BadZipFile):
            raise UsageError(
                f"{self.path} has no readable {NAME}/{name}. Name a wheel or folder of "
                f"{DISTRIBUTION} {VERSION}, answers included, or get it: {FETCH}."
            ) from None

    @staticmethod
    def _find(path: Path) -> "zipfile.Path | Path":
        """Return the package's own folder in a wheel or a folder."""
        root: zipfile.Path | Path = path
        if not path.exists():
            raise UsageError(f"--data {path}: there is no such file or folder.")
        if path.is_file():
            if not zipfile.is_zipfile(path):
                raise UsageError(
                    f"{path} is neither a folder nor a wheel of {DISTRIBUTION}."
                )
            root = zipfile.Path(path)
        for name in (each.name for each in root.iterdir()):
            version = name.removeprefix(f"{NAME}-").removesuffix(".dist-info")
            if name == f"{NAME}-{version}.dist-info" and version != VERSION:
                raise UsageError(
                    f"{path} is {DISTRIBUTION} {version}; {VERSION} is the version "
                    f"that is read. Get it: {FETCH}."
                )
        return root / NAME if (root / NAME).is_dir() else root


def fetched() -> Path:
    """Return the folder of the downloaded package, which may not exist."""
    return agents_folder().parent / "data" / f"{NAME}-{VERSION}"


def fetch() -> Path:
    """Download the wheel of the known version with pip or uv, and return its folder.

    It is unpacked without its dependencies, and not into this Python environment.
    """
    place = fetched()
    if place.is_dir():
        return place
    require_writable_state()
    place.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(place) as folder:
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{DISTRIBUTION}=={VERSION} --hash=sha256:{_WHEEL_SHA256}\n")
        options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(folder)]
        wrong = "there is neither pip nor uv. Install one: pip install uv"
        for install in _installers():
            if not (wrong := _run([*install, *options, "-r", str(wanted)])):
                break
        if wrong:
            raise AgentGymError(
                f"{DISTRIBUTION} {VERSION} cannot be fetched: {wrong}\nFetch its wheel "
                "elsewhere, and name it: --data PATH."
            )
        wanted.unlink()
    return place


def _installers() -> Iterator[list[str]]:
    """Yield the commands that can install a package, the best command first."""
    if find_spec("pip") is not None:
        yield [sys.executable, "-m", "pip", "install", "--no-compile"]
    if (uv := which("uv")) is not None:
        yield [uv, "pip", "install", "--python", sys.executable]
    if (pip := which("pip")) is not None:
        yield [pip, "install", "--no-compile"]


def _run(command: list[str]) -> str:
    """Run a command, and return its error message; "" if it succeeded."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.strip()[-800:] or f"{command[0]} ended with {done.returncode}"
    return said if done.returncode else ""
