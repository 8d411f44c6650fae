"""The options that commands share, and how options become settings."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agentgym.core.settings import Settings
    from agentgym.train.trained_agent import TrainedAgent


def opt(text: str, *names: str, **more: Any) -> Any:
    """Return an option that ``text`` explains; it is named like its parameter."""
    return typer.Option(*names, help=text, **more)


AsJson = Annotated[bool, opt("Print JSON on stdout.", "--json")]
Runs = Annotated[Path, opt("Folder of runs.", "--output")]
UnsafeLocalExec = Annotated[
    bool, opt("Run model-written code without a sandbox.", "--unsafe-local-exec")
]


def named_model(name: str) -> "TrainedAgent | str":
    """Say what ``name`` means: a saved agent, or else a model.

    Raises:
        NotFoundError: Neither; names the nearest agent and those there are.
    """
    from agentgym.errors import NotFoundError
    from agentgym.models.reference import is_local, is_remote
    from agentgym.train.trained_agent import TrainedAgent

    if is_remote(name) or name == "nano":
        return name
    try:
        return TrainedAgent.load(name)
    except NotFoundError:
        if is_local(name):
            return name
        raise


def given_settings(
    context: typer.Context, settings: type["Settings"]
) -> dict[str, Any]:
    """Return what was given of settings: options are named like the setting they set.

    A flag that is not given leaves its setting alone, like any other option.
    """
    given = {name: context.params.get(name) for name in settings.model_fields}
    return {k: v for k, v in given.items() if v is not None and v is not False}


def require_place(path: Path) -> None:
    """Check that a file can be written, before anything is done.

    Raises:
        UsageError: It cannot.
    """
    from agentgym.errors import UsageError

    if path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"the folder {path.parent} is not writable"
    else:
        return
    raise UsageError(f"{path} cannot be written: {problem}. Choose another place.")
