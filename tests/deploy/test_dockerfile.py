"""deploy/Dockerfile, as far as it can be read without Docker."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.manifests import DEPLOY, find, pod

ROOT = DEPLOY.parent
UV = shutil.which("uv")


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, lines joined and comments left out."""
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    words = [line.partition(" ") for line in joined.splitlines() if line]
    return [(name, rest.strip()) for name, _, rest in words]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def copied() -> list[str]:
    """Return what is copied out of the repository."""
    mine = [rest.split() for rest in of("COPY") if not rest.startswith("--from")]
    return [source for *sources, _ in mine for source in sources]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_what_is_copied_is_there_and_not_ignored() -> None:
    rules = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    assert copied()
    for source in copied():
        assert (ROOT / source).exists(), source
        kept = False
        for rule in rules:
            if fnmatch.fnmatch(source, rule.removeprefix("!")):
                kept = rule.startswith("!")
        assert kept, source


def test_the_build_has_all_that_the_package_is_made_of() -> None:
    found = project()
    targets = found["tool"]["hatch"]["build"]["targets"]
    [wheel] = targets["wheel"]["packages"]
    linked = targets["sdist"]["force-include"]
    about = found["project"]
    needed = [about["readme"], *about["license-files"], "pyproject.toml"]
    assert {*needed, *linked, wheel.partition("/")[0]} == set(copied())


def test_extras_programs_and_python_are_the_packages() -> None:
    about = project()["project"]
    [default] = of("ARG")
    extras = default.removeprefix("EXTRAS=").split(",")
    assert set(extras) <= about["optional-dependencies"].keys()
    assert of("ENTRYPOINT") == ['["agentgym"]']
    assert "agentgym" in about["scripts"]
    scripts = {point.name for point in entry_points(group="console_scripts")}
    for deployment in ("gateway", "controller"):
        [container] = pod(find("Deployment", deployment))["containers"]
        assert container.get("command", ["agentgym"])[0] in scripts
    images = [rest.split()[0] for rest in of("FROM")]
    assert set(images) == {"python:3.12-slim"}
    assert about["requires-python"] == ">=3.12"


def test_it_does_not_run_as_root() -> None:
    [user] = of("USER")
    number = int(user.partition(":")[0])
    assert number >= 1000
    assert any(f"useradd --uid {number} " in command for command in of("RUN"))
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(i for i, n in enumerate(names) if n == "RUN")
    for deployment in ("gateway", "controller"):
        context = pod(find("Deployment", deployment))["securityContext"]
        assert context["runAsUser"] == number


@pytest.mark.slow
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_uv_has_the_options_that_it_is_given() -> None:
    commands = [part.strip() for rest in of("RUN") for part in rest.split("&&")]
    mine = [command for command in commands if command.startswith("uv ")]
    assert [command.split()[1] for command in mine] == ["venv", "pip"]
    for command in mine:
        words = command.split()
        verbs = words[1:3] if words[1] == "pip" else words[1:2]
        told = subprocess.run(
            [str(UV), *verbs, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{option}\b", told), option


@pytest.mark.network
@pytest.mark.timeout(600)
@pytest.mark.skipif(UV is None, reason="uv is not installed")
def test_the_first_stage_can_be_built(tmp_path: Path) -> None:
    """Run its commands on what it copies; its folders become those of the test."""
    build, made = tmp_path / "build", tmp_path / "made"
    build.mkdir()
    for source in copied():
        if (ROOT / source).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, build / source, ignore=ignore)
        else:
            shutil.copy(ROOT / source, build)
    [command] = [rest for rest in of("RUN") if rest.startswith("uv ")]
    command = command.replace("/opt/agentgym", str(made)).replace(" --no-cache", "")
    command = command.replace("/usr/local/bin/python3.12", sys.executable)
    [default] = of("ARG")
    subprocess.run(
        ["bash", "-euc", f"{default}; {command}"], cwd=build, check=True, timeout=500
    )
    for program in ("agentgym", "agl-controller"):
        words = [str(made / "bin" / program), "--help"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout
