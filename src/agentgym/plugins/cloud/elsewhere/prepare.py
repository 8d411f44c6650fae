"""Install the packages of a run on the remote machine."""

import hashlib
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError, UnreachableError, UsageError
from agentgym.plugins.cloud.elsewhere.package import WHEEL_NAME, wheel
from agentgym.plugins.cloud.elsewhere.upload import Upload
from agentgym.plugins.cloud.reconnect import RetryingShell
from agentgym.plugins.cloud.sizes import needs_of
from agentgym.version import __version__

FOLDER = ".agentgym/elsewhere"
"""Folder of all runs and environments, relative to the remote home folder."""
ENGINES = ".agentgym/engines"
"""Folder with an environment per engine such as vLLM, relative to the home folder."""
PYTHON_VARIABLE = "AGENTGYM_ELSEWHERE_PYTHON"
"""Remote environment variable with the path of a Python that has agentgym.

If it is set, this Python is used, and no environment with agentgym is installed.
"""
_FREE_TO_INSTALL_MB = 8_000
_FREE_TO_RUN_MB = 500
_FREE_FOR_ENGINE_MB = 35_000
"""Free disk space in MB to install vLLM; its environment takes about 20 GB."""
_INSTALL_S = 3_600.0

_LOOK = """
say() { printf '%s=%s\\n' "$1" "$2"; }
dir="$HOME/FOLDER"
mkdir -p "$dir" 2>/dev/null && [ -w "$dir" ] && say writable yes
say home "$HOME"
say system "$(uname -s)"
say free_mb "$(df -Pk "$HOME" | awk 'NR == 2 { print int($4 / 1024) }')"
say python "${VARIABLE:-}"
for each in "$(command -v uv)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" \\
    "$HOME/.agentgym/bin/uv"; do
    if [ -x "$each" ]; then say uv "$each"; break; fi
done
[ -e "$dir/envs/KEY/ready" ] && say ready yes
[ -x "$HOME/ENGINES/ENGINE/bin/ENGINE" ] && say engine yes
say gpus "$(nvidia-smi -L 2>/dev/null | wc -l)"
say gpu_mb "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits \\
    2>/dev/null | head -n 1)"
say about "$(uname -sm), $(getconf _NPROCESSORS_ONLN 2>/dev/null) cores"
"""
_GET_UV = """
url=https://astral.sh/uv/install.sh
export UV_INSTALL_DIR="$HOME/.agentgym/bin" UV_NO_MODIFY_PATH=1
script="$HOME/FOLDER/uv.sh" own="$HOME/.agentgym/uv"
fetch() {
    if command -v curl >/dev/null; then curl -LsSf "$url" -o "$script"
    elif command -v wget >/dev/null; then wget -qO "$script" "$url"
    else echo 'neither curl nor wget is installed' >&2; return 1; fi
}
by_pip() {  # if only a package index can be reached
    python3 -m venv "$own" && "$own/bin/pip" install -q uv &&
        ln -sf "$own/bin/uv" "$UV_INSTALL_DIR/uv"
}
mkdir -p "$UV_INSTALL_DIR"
said="$({ fetch && sh "$script"; } 2>&1)" || by_pip >/dev/null 2>&1 ||
    { printf '%s\\n' "$said" | tail -n 1 >&2; exit 1; }
rm -f "$script"
"""
_INSTALL = """
set -e
dir="$HOME/FOLDER/envs/KEY"
auto=
if [ GPUS != 0 ] && UV pip install --help | grep -q torch-backend; then
    auto='--torch-backend auto'
fi
UV venv -q --clear --python 3.12 "$dir"
UV pip install -q $auto --python "$dir/bin/python" PACKAGES
touch "$dir/ready"
"""
_INSTALL_ENGINE = """
unset AGENTGYM_HOME
export PATH="$(dirname UV):$PATH"
PYTHON -m agentgym engine install ENGINE
"""


@dataclass(frozen=True)
class Ready:
    """Paths on a remote machine: the Python that has agentgym, and the home folder."""

    python: str
    home: str


def prepare(
    shell: RetryingShell, upload: Upload, report: Callable[[str], None]
) -> Ready:
    """Install agentgym, the run's packages and its engine on the remote machine."""
    built = wheel()
    words = (*upload.extras, *upload.packages)
    key = hashlib.sha256(built + "\0".join(words).encode()).hexdigest()[:16]
    engine = upload.engine
    found = _look(shell, key, engine)
    where, home = shell.address, found["home"]
    if found["system"] != "Linux":
        raise ComputeError(f"{where} runs {found['system']}; training needs Linux.")
    if "writable" not in found:
        raise ComputeError(f"{home}/{FOLDER} on {where} cannot be written.")
    has_python, is_ready = bool(found["python"]), "ready" in found
    _require_space(shell, found, is_made=has_python or is_ready)
    lacks_engine = bool(engine) and "engine" not in found
    if upload.may_choose:
        lacks_engine = lacks_engine and _has_room(found, upload.config)
    if "uv" not in found and not (has_python or is_ready):
        found = _with_uv(shell, key, engine, report)
    if has_python:
        python = _checked(shell, found["python"])
    else:
        python = f"{home}/{FOLDER}/envs/{key}/bin/python"
        if not is_ready:
            report(f"Installing agentgym with {', '.join(upload.extras)} on {where}.")
            _install(shell, upload, key, built, found)
    try:
        if lacks_engine and "uv" not in found:
            found = _with_uv(shell, key, engine, report)
        if lacks_engine:
            report(f"Installing {engine} on {where}, which takes minutes.")
            has_gpu = _number(found, "gpus") > 0
            _install_engine(shell, python, engine, found["uv"], has_gpu=has_gpu)
    except UnreachableError:
        raise
    except ComputeError as error:
        if not upload.may_choose:
            raise
        report(f"{error} This run samples with the local engine instead.")
    return Ready(python, home)


def _has_room(found: dict[str, str], config: TrainingConfig) -> bool:
    """Return whether GPU memory and disk space are enough to train with vLLM.

    If the size of the GPU's memory or of the model is unknown, the memory counts as
    enough.
    """
    if not _number(found, "gpus") or _number(found, "free_mb") < _FREE_FOR_ENGINE_MB:
        return False
    memory = _number(found, "gpu_mb") * 2**20 / 1e9
    with suppress(UsageError):  # unknown model size: the machine itself checks it
        return not memory or needs_of(config)[0].gb <= memory
    return True


def _number(found: dict[str, str], name: str) -> int:
    text = found.get(name, "").strip()
    return int(text) if text.isdigit() else 0


def _with_uv(
    shell: RetryingShell, key: str, engine: str, report: Callable[[str], None]
) -> dict[str, str]:
    """Install uv; return the machine's properties, which then include uv's path."""
    report(f"Installing uv on {shell.address}.")
    try:
        shell.run(_filled(_GET_UV), timeout_s=300.0)
    except UnreachableError:
        raise
    except ComputeError as error:
        raise ComputeError(
            "uv, which installs the packages for training, is not on "
            f"{shell.address} and could not be fetched there ({error}). Install it "
            "(https://docs.astral.sh/uv), or give the machine access to the internet."
        ) from None
    return _look(shell, key, engine)


def _look(shell: RetryingShell, key: str, engine: str) -> dict[str, str]:
    names = {"KEY": key, "ENGINE": engine or "none"}
    script = _filled(_LOOK, **names, ENGINES=ENGINES, VARIABLE=PYTHON_VARIABLE)
    lines = shell.run(script).splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if not {"home", "system", "free_mb", "python"} <= found.keys():
        raise ComputeError(
            f"{shell.address} did not describe itself: {' '.join(lines)[:200]!r}."
        )
    return found


def _filled(script: str, **values: str) -> str:
    values = {"FOLDER": FOLDER, **values}
    # In one pass, since a path may contain one of the names.
    names = re.compile(rf"\b({'|'.join(values)})\b")
    return names.sub(lambda name: values[name[0]], script)


def _require_space(
    shell: RetryingShell, found: dict[str, str], *, is_made: bool
) -> None:
    needed = _FREE_TO_RUN_MB if is_made else _FREE_TO_INSTALL_MB
    free = int(found["free_mb"] or 0)
    if free < needed:
        what = "a run" if is_made else "the environment for training"
        raise ComputeError(
            f"Only {free:,} MB are free in {found['home']} on {shell.address}; {what} "
            f"takes {needed:,} MB. Free some space on it."
        )


def _checked(shell: RetryingShell, python: str) -> str:
    """Return the remote path ``python``, after checking that interpreter."""
    code = "import agentgym.version as v; print(v.__version__)"
    try:
        version = shell.run(f"{shlex.quote(python)} -c {shlex.quote(code)}").strip()
    except UnreachableError:
        raise
    except ComputeError as error:
        raise ComputeError(
            f"{PYTHON_VARIABLE} is {python} on {shell.address}, which does not have "
            f"agentgym ({error})."
        ) from None
    if version != __version__:
        raise ComputeError(
            f"{PYTHON_VARIABLE} is {python} on {shell.address}, which has agentgym "
            f"{version}, and here is {__version__}: install the same version there."
        )
    return python


def _install(
    shell: RetryingShell, upload: Upload, key: str, built: bytes, found: dict[str, str]
) -> None:
    """Install the run's packages, and agentgym from the wheel ``built``."""
    folder = f"{found['home']}/{FOLDER}/wheels/{key}"
    quoted = shlex.quote(folder)
    send = f"mkdir -p {quoted} && cat > {quoted}/{WHEEL_NAME}"
    own = f"{folder}/{WHEEL_NAME}[{','.join(upload.extras)}]"
    install = _filled(
        _INSTALL,
        KEY=key,
        UV=shlex.quote(found["uv"]),
        GPUS=found.get("gpus", "0").strip(),
        PACKAGES=shlex.join([own, *upload.packages]),
    )
    try:
        shell.run(send, data=built, timeout_s=600.0)
        shell.run(install, timeout_s=_INSTALL_S)
    except UnreachableError:
        raise
    except ComputeError as error:
        raise ComputeError(
            f"The packages for training could not be installed. {error}. The machine "
            f"needs a package index and {_FREE_TO_INSTALL_MB:,} MB of disk; or set "
            f"{PYTHON_VARIABLE} on it to an interpreter that has agentgym "
            f"{__version__}."
        ) from None


def _install_engine(
    shell: RetryingShell, python: str, engine: str, uv: str, *, has_gpu: bool
) -> None:
    """Install ``engine`` in its own environment, which the machine's runs share."""
    wanted = engine if has_gpu else f"{engine} --cpu"
    install = _filled(
        _INSTALL_ENGINE,
        UV=shlex.quote(uv),
        PYTHON=shlex.quote(python),
        ENGINE=wanted,
    )
    try:
        shell.run(install, timeout_s=_INSTALL_S)
    except UnreachableError:
        raise
    except ComputeError as error:
        raise ComputeError(
            f"{engine} could not be installed on {shell.address}. {error}. Log in "
            f"there and run `agentgym engine install {wanted}`, or train with "
            "--engine local."
        ) from None
