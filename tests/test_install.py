"""The install command that messages print, for each way of installing the package."""

import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import agentgym
from agentgym.errors import MissingExtraError
from agentgym.install import install_command
from agentgym.version import DISTRIBUTION

ROOT = Path(__file__).parents[1]
WAYS: dict[str, tuple[dict[str, object] | None, str]] = {
    "index": (None, '"agentgym-sdk[local]"'),
    "checkout": (
        {"url": "file:///my%20work/gym", "dir_info": {"editable": True}},
        '-e "/my work/gym[local]"',
    ),
    "folder": ({"url": "file:///gym", "dir_info": {}}, '"/gym[local]"'),
    "wheel": (
        {"url": "file:///d/agentgym_sdk-1-py3-none-any.whl", "archive_info": {}},
        '"agentgym-sdk[local] @ file:///d/agentgym_sdk-1-py3-none-any.whl"',
    ),
    "repository": (
        {
            "url": "https://git.example/a.git",
            "vcs_info": {"vcs": "git", "commit_id": "abc"},
        },
        '"agentgym-sdk[local] @ git+https://git.example/a.git@abc"',
    ),
    "odd name": (
        {"url": "file:///a$b", "dir_info": {"editable": True}},
        "-e '/a$b[local]'",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_command_fits_the_way_of_installing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    direct, wanted = WAYS[way]
    about = tmp_path / "agentgym_sdk-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {DISTRIBUTION}\nVersion: 0.1.0\n")
    if direct is not None:
        (about / "direct_url.json").write_text(json.dumps(direct))
    monkeypatch.syspath_prepend(tmp_path)
    command = str(MissingExtraError("local", "Training")).partition("with: ")[2]
    installer, _, requirement = command.partition(" install ")
    assert installer in ("pip", "uv pip")
    assert requirement.removeprefix(f"--python {sys.prefix} ") == wanted


def test_source_that_is_not_installed_is_its_own_checkout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution(DISTRIBUTION)
    command = install_command("local", "crewai")
    assert command.endswith(f'-e "{ROOT}[local,crewai]"')


@pytest.mark.slow
def test_the_base_install_does_without_agent_lightning() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not [name for name in project["dependencies"] if "lightning" in name]
    assert [name for name in extras["lightning"] if name.startswith("agentlightning")]
    assert "lightning" in extras["all"][0]
    script = """
import sys
for name in ("agentlightning", "fastapi", "hydra", "kr8s", "omegaconf", "starlette"):
    sys.modules[name] = None  # importing it fails
import agentgym.cli.main, agentgym.plugins.lightning.service, agentgym.rollout.session
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.store.store import Store
with Store() as store, Gateway(store) as gateway:
    print(gateway.url)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout.startswith("http://"), done.stderr


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_installs_its_extras_from_itself(
    tmp_path: Path,
) -> None:
    def run(*words: str) -> str:
        environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert Path(agentgym.__file__).is_relative_to(ROOT)
    run("uv", "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.startswith("agentgym_sdk-")
    python = str(tmp_path / "venv" / "bin" / "python")
    run("uv", "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv"))
    install = ("uv", "pip", "install", "--no-deps", "--python", python)
    run(*install, "--quiet", str(wheel))
    show = "from agentgym.install import install_command as c; print(c('local'))"
    words = shlex.split(run(python, "-c", show))
    assert words[-1] == f"{DISTRIBUTION}[local] @ {wheel.as_uri()}"
    said = run(*words, "--no-deps", "--reinstall", "--dry-run")
    assert f"+ {DISTRIBUTION}" in said
    assert wheel.as_uri() in said
    assert run(str(tmp_path / "venv" / "bin" / "agentgym"), "--version").strip()
