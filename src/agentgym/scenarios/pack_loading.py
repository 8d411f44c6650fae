"""Import a scenario pack (a folder with a scenario), with helpful errors."""

import hashlib
import inspect
import os
import re
import sys
from importlib import import_module, invalidate_caches
from types import ModuleType
from typing import NoReturn

from agentgym.errors import AgentGymError, ScenarioError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.packs import PACK_FILE, pack_name

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def load_pack(path: str) -> Scenario:
    """Return a new instance of the scenario in a pack (a folder with a scenario)."""
    # Imported as a package, so that scenario.py can import other modules of the folder.
    scenario = _scenario_class(_import(path), path)
    name = getattr(scenario, "name", None)  # a class attribute that may be missing
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ScenarioError(
            f"The scenario of {path} has the name {name!r}; set `name` to small "
            f"letters, digits and _, such as {pack_name(path)!r}."
        )
    try:
        return scenario()
    except (Exception, SystemExit) as error:
        raise ScenarioError(
            f"{scenario.__name__} of {path} raised {type(error).__name__} when it was "
            f"made without arguments: {error}"
        ) from error


def _import(path: str) -> ModuleType:
    folder, file = os.path.split(path) if path.endswith(".py") else (path, PACK_FILE)
    source = os.path.join(folder, file)
    digest = hashlib.sha256(folder.encode()).hexdigest()[:8]
    plain = re.sub(r"\W", "_", os.path.basename(folder))
    package = f"agentgym_pack_{plain}_{digest}"
    if package not in sys.modules:
        made = ModuleType(package, f"The scenario pack in {folder}.")
        made.__path__ = [folder]
        sys.modules[package] = made
    invalidate_caches()
    try:
        return import_module(f"{package}.{file.removesuffix('.py')}")
    except ModuleNotFoundError as error:
        _refuse_missing(error, source, package)
    except SyntaxError as error:
        raise ScenarioError(
            f"{error.filename or source}, line {error.lineno or 1}: {error.msg}. The "
            "scenario pack cannot be loaded before this is fixed."
        ) from error
    except AgentGymError as error:
        raise ScenarioError(f"{source}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ScenarioError(
            f"{source} raised {type(error).__name__} when it was imported: {error}"
        ) from error


def _refuse_missing(error: ModuleNotFoundError, source: str, package: str) -> NoReturn:
    missing = error.name or str(error)
    if missing.startswith(package):
        inner = missing.removeprefix(package).lstrip(".")
        raise ScenarioError(
            f"{source} imports {inner!r} from its own folder, where it is not."
        ) from error
    folder = os.path.dirname(source)
    requirements = os.path.join(folder, "requirements.txt")
    install = missing.partition(".")[0]
    place = os.path.join(folder, install)
    if os.path.isfile(f"{place}.py") or os.path.isdir(place):
        raise ScenarioError(
            f"{source} needs the module {missing!r}, which lies next to it: write "
            f"`from .{missing} import …` with the dot."
        ) from error
    if os.path.isfile(requirements):
        install = f"-r {requirements}"
    raise ScenarioError(
        f"{source} needs the module {missing!r}, which is not installed. Install it "
        f"with: pip install {install}"
    ) from error


def _scenario_class(module: ModuleType, path: str) -> type[Scenario]:
    """Return the only public scenario class of a module."""
    package = module.__name__.rpartition(".")[0]
    found = {
        value: None
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Scenario)
        and value.__module__.startswith(package)
        and not name.startswith("_")
    }
    usable = [value for value in found if not inspect.isabstract(value)]
    if len(usable) == 1:
        return usable[0]
    if usable:
        names = ", ".join(value.__name__ for value in usable)
        raise ScenarioError(
            f"{path} holds {len(usable)} scenarios ({names}); a pack holds one. Put "
            "the others into folders of their own, or start their names with _."
        )
    if found:
        first = next(iter(found))
        missing = ", ".join(sorted(first.__abstractmethods__))
        raise ScenarioError(
            f"{first.__name__} of {path} lacks methods of Scenario: {missing}."
        )
    raise ScenarioError(
        f"{path} holds no scenario: write a subclass of agentgym.Scenario, or start "
        "with `agentgym scenarios new`."
    )
