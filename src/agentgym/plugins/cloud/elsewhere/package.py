"""Build a wheel of agentgym from its installed files, without a build tool."""

import base64
import hashlib
import io
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from agentgym.version import DISTRIBUTION, __version__

_WHEEL = """Wheel-Version: 1.0
Generator: agentgym
Root-Is-Purelib: true
Tag: py3-none-any
"""
_STAMP = (2020, 1, 1, 0, 0, 0)
_STEM = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"
WHEEL_NAME = f"{_STEM}-py3-none-any.whl"


def wheel() -> bytes:
    """Return a wheel of agentgym, as bytes; equal files give equal bytes."""
    root = Path(__file__).parents[3]
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
