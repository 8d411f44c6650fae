"""Install agentgym, as a wheel, and the packages of a run on the remote machine."""

import base64
import hashlib
import io
import shlex
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from agentgym.errors import ComputeError, UnreachableError
from agentgym.plugins.cloud.shell import Shell
from agentgym.plugins.cloud.upload import Upload
from agentgym.version import DISTRIBUTION, __version__

FOLDER = ".agentgym/elsewhere"
"""Folder of all runs and environments, relative to the remote home folder."""
PYTHON_VARIABLE = "AGENTGYM_ELSEWHERE_PYTHON"
"""Remote environment variable with the path of a Python that has agentgym.

If it is set, this Python is used, and no environment with agentgym is installed.
"""
_FREE_TO_INSTALL_MB = 8_000
_FREE_TO_RUN_MB = 500
_INSTALL_S = 3_600.0

# The scripts have the variables ``dir`` and ``env``; see :func:`_script`.
_LOOK = f"""
say() {{ printf '%s=%s\\n' "$1" "$2"; }}
mkdir -p "$dir" 2>/dev/null && [ -w "$dir" ] && say writable yes
say home "$HOME"
say system "$(uname -s)"
say free_mb "$(df -Pk "$HOME" | awk 'NR == 2 {{ print int($4 / 1024) }}')"
python="${{{PYTHON_VARIABLE}:-}}"
say python "$python"
[ -z "$python" ] || say version "$("$python" -c \\
    'import agentgym.version as v; print(v.__version__)' 2>&1 | tail -n 1)"
for each in "$(command -v uv)" "$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv" \\
    "$HOME/.agentgym/bin/uv"; do
    if [ -x "$each" ]; then say uv "$each"; break; fi
done
[ -e "$env/ready" ] && say ready yes
say gpus "$(nvidia-smi -L 2>/dev/null | wc -l)"
"""
_GET_UV = """
url=https://astral.sh/uv/install.sh
export UV_INSTALL_DIR="$HOME/.agentgym/bin" UV_NO_MODIFY_PATH=1
script="$dir/uv.sh" own="$HOME/.agentgym/uv"
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
auto=
if [ "$gpus" != 0 ] && "$uv" pip install --help | grep -q torch-backend; then
    auto='--torch-backend auto'
fi
"$uv" venv -q --clear --python 3.12 "$env"
"$uv" pip install -q $auto --python "$env/bin/python" "$@"
touch "$env/ready"
"""
_WHEEL = """Wheel-Version: 1.0
Generator: agentgym
Root-Is-Purelib: true
Tag: py3-none-any
"""
_STAMP = (2020, 1, 1, 0, 0, 0)
_STEM = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
_WHEEL_NAME = f"{_STEM}-py3-none-any.whl"


@dataclass(frozen=True)
class Ready:
    """Paths on a remote machine: the Python that has agentgym, and the home folder."""

    python: str
    home: str


def prepare(shell: Shell, upload: Upload, report: Callable[[str], None]) -> Ready:
    """Install agentgym and the run's packages on the remote machine."""
    built, where = wheel(), shell.address
    words = (*upload.extras, *upload.packages)
    key = hashlib.sha256(built + "\0".join(words).encode()).hexdigest()[:16]
    found = _look(shell, key)
    home, python = found["home"], found["python"]
    if found["system"] != "Linux":
        raise ComputeError(f"{where} runs {found['system']}; training needs Linux.")
    if "writable" not in found:
        raise ComputeError(f"{home}/{FOLDER} on {where} cannot be written.")
    is_made = bool(python) or "ready" in found
    needed = _FREE_TO_RUN_MB if is_made else _FREE_TO_INSTALL_MB
    if (free := int(found["free_mb"] or 0)) < needed:
        raise ComputeError(
            f"Only {free:,} MB are free in {home} on {where}; "
            f"{'a run' if is_made else 'the environment for training'} takes "
            f"{needed:,} MB. Free some space on it."
        )
    if python and found["version"] != __version__:
        raise ComputeError(
            f"{PYTHON_VARIABLE} is {python} on {where}, which has agentgym "
            f"{found['version']}, and here is {__version__}: install the same version "
            "there."
        )
    if not is_made:
        if "uv" not in found:
            report(f"Installing uv on {where}.")
            failed = (
                f"uv, which installs the packages for training, is not on {where} and "
                "could not be fetched there ({}). Install it "
                "(https://docs.astral.sh/uv), or give the machine access to the "
                "internet."
            )
            _run(shell, _script(_GET_UV, key), 300.0, failed)
            found = _look(shell, key)
        report(f"Installing agentgym with {', '.join(upload.extras)} on {where}.")
        _install(shell, upload, key, built, found)
    return Ready(python or f"{home}/{FOLDER}/envs/{key}/bin/python", home)


def wheel() -> bytes:
    """Return a wheel of the installed agentgym; equal files give equal bytes."""
    root = Path(__file__).parents[2]
    about = f"{_STEM}.dist-info"
    installed = distribution(DISTRIBUTION)
    files = {
        f"agentgym/{path.relative_to(root).as_posix()}": path.read_bytes()
        for folder in (root, root / "packs")  # In a clone, packs is a link.
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    for name in ("METADATA", "entry_points.txt"):
        files[f"{about}/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{about}/WHEEL"] = _WHEEL.encode()
    record = "".join(f"{name},{_digest(data)}\n" for name, data in files.items())
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, _STAMP)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()},{len(data)}"


def _script(text: str, key: str, packages: tuple[str, ...] = (), **values: str) -> str:
    """Return a script with shell variables; ``packages`` are its arguments."""
    head = [f'dir="$HOME/{FOLDER}" env="$HOME/{FOLDER}/envs/{key}"']
    head += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    head.append(f"set -- {shlex.join(packages)}")
    return "\n".join((*head, text))


def _run(shell: Shell, script: str, timeout_s: float, failed: str) -> None:
    """Run a script; if it fails, put its error into the sentence ``failed``."""
    try:
        shell.run(script, timeout_s=timeout_s)
    except UnreachableError:
        raise
    except ComputeError as error:
        raise ComputeError(failed.replace("{}", str(error))) from None


def _look(shell: Shell, key: str) -> dict[str, str]:
    """Return facts about the machine: home, system, free_mb, python, uv, gpus, …."""
    lines = shell.run(_script(_LOOK, key)).splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    if not {"home", "system", "free_mb", "python"} <= found.keys():
        raise ComputeError(
            f"{shell.address} did not describe itself: {' '.join(lines)[:200]!r}."
        )
    return found


def _install(
    shell: Shell, upload: Upload, key: str, built: bytes, found: dict[str, str]
) -> None:
    """Install the run's packages, and agentgym from the wheel ``built``."""
    folder = f"{found['home']}/{FOLDER}/wheels/{key}"
    quoted = shlex.quote(folder)
    shell.run(
        f"mkdir -p {quoted} && cat > {quoted}/{_WHEEL_NAME}", data=built, timeout_s=600
    )
    own = f"{folder}/{_WHEEL_NAME}[{','.join(upload.extras)}]"
    packages, gpus = (own, *upload.packages), found.get("gpus", "0").strip()
    install = _script(_INSTALL, key, packages, uv=found["uv"], gpus=gpus)
    failed = (
        "The packages for training could not be installed. {}. The machine needs a "
        f"package index and {_FREE_TO_INSTALL_MB:,} MB of disk; or set "
        f"{PYTHON_VARIABLE} on it to an interpreter that has agentgym {__version__}."
    )
    _run(shell, install, _INSTALL_S, failed)
