"""Public names: imported from where they are defined, when they are first used."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import agentgym
from tests.plugins.view.made_run import make_run

PACKAGES = [
    "agentgym",
    "agentgym.integrations",
    "agentgym.rollout",
    "agentgym.sandbox",
    "agentgym.scenarios",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_also_a_module_which_an_import_would_put_over_it(
    package: str,
) -> None:
    module = import_module(package)
    modules = {found.name for found in iter_modules(module.__path__)}
    assert not modules & set(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there_and_no_other(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    assert module.__file__ is not None
    _, source = Path(module.__file__).read_text().split("if TYPE_CHECKING:")
    assert len(module.__all__) == source.count("\n    from ")
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        found = getattr(module, name)
        assert getattr(found, "__name__", name) == name
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'nope'"):
        module.nope  # noqa: B018


def test_core_has_the_public_names_too() -> None:
    core = import_module("agentgym.core")
    assert core.Scenario is agentgym.Scenario
    assert core.Trainer is agentgym.Trainer
    with pytest.raises(AttributeError, match="'agentgym.core' has no attribute 'nope'"):
        core.nope  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = "import agentgym, sys; print({'pydantic', 'torch'} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert ended.stdout == b"set()\n", ended.stderr


def test_a_plan_or_a_result_loads_no_model_library() -> None:
    heavy = "{'transformers', 'torch'}"
    names = "agentgym.ui.cards, agentgym.train.plan, sys"
    script = f"import {names}; print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert ended.stdout == b"set()\n", ended.stderr


@pytest.mark.parametrize("words", ["--help", "runs show made", "doctor"])
def test_commands_that_compute_nothing_load_no_settings(
    words: str, tmp_path: Path
) -> None:
    make_run(tmp_path / "runs" / "made", result=True)
    heavy = {"pydantic", "numpy"} | ({"typer"} if words == "--help" else set())
    script = (
        "import sys\nfrom agentgym.cli.main import main\n"
        f"code = main({words.split()!r})\n"
        f"print(code, {heavy!r} & set(sys.modules), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script]
    home = {**os.environ, "AGENTGYM_HOME": str(tmp_path / "home")}
    ended = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True)
    assert ended.stderr.endswith(b"0 set()\n"), ended.stderr
