"""Build the shell command that adds optional extras to this installation."""

import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from agentgym.version import DISTRIBUTION


def install_command(*extras: str) -> str:
    """Return the shell command that adds extras to this installation.

    If the package was installed from a checkout, a wheel or a repository, the command
    names this source. It does not name the package alone, because other projects on
    PyPI have similar names.
    """
    return f"{installer()} {_requirement(','.join(extras))}"


def installer() -> str:
    """Return the command that installs packages into this environment."""
    if find_spec("pip") is None:  # uv makes environments without pip
        return f"uv pip install --python {shlex.quote(sys.prefix)}"
    return "pip install"


def _requirement(extras: str) -> str:
    """Return the ``pip install`` arguments for these extras, quoted for a shell."""
    url, direct = _origin()
    if not url:
        return f'"{DISTRIBUTION}[{extras}]"'
    if "dir_info" in direct:
        flag = "-e " if direct["dir_info"].get("editable") else ""
        folder = unquote(urlsplit(url).path)
        return flag + quoted(f"{folder}[{extras}]")
    if "vcs_info" in direct:
        vcs = direct["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return quoted(f"{DISTRIBUTION}[{extras}] @ {url}")


def _origin() -> tuple[str, dict[str, dict[str, str]]]:
    """Return the installation's URL and ``direct_url.json``; empty from an index."""
    # Importing importlib.metadata takes 40 ms; commands without extras skip it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        root = Path(__file__).parents[2]
        if (root / "pyproject.toml").is_file():
            return root.as_uri(), {"dir_info": {"editable": "yes"}}
        return "", {}
    direct = json.loads(text) if text else {}
    return direct.get("url", ""), direct


def quoted(text: str) -> str:
    """Quote a text for a shell, with double quotes if possible."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'
