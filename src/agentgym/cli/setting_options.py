"""Options made of settings: a command names settings, and gets an option for each."""

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from agentgym.cli.options import Taken
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.machines import HERE, RENTED
from agentgym.core.settings import about

_GIVEN = "given"
"""The parameter of a command that gets the given settings, by dotted name."""


def _frameworks(context: typer.Context, words: list[str], begun: str) -> list[str]:
    from agentgym.integrations.registry import FRAMEWORKS

    return FRAMEWORKS.names()


def _engines(context: typer.Context, words: list[str], begun: str) -> list[str]:
    from agentgym.engines.registry import ENGINES

    return [AUTO_ENGINE, *ENGINES.names()]


def _places(context: typer.Context, words: list[str], begun: str) -> list[str]:
    return [*HERE, *RENTED]


_COMPLETED = {"framework": _frameworks, "engine": _engines, "gpu": _places}
"""Functions that return the values for a shell to complete, by setting."""


def setting_named(option: str) -> str | None:
    """Return the setting with the usual name of an option, as in ``--judge-weight``."""
    word = option.lstrip("-").replace("-", "_")
    names = {name.replace(".", "_"): name for name in TrainingConfig.names()}
    return names.get(word)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the options that :func:`takes` noted, for typer."""
    taken: Taken = command.__dict__["takes"]
    fields, names = TrainingConfig.fields(), list(taken.names)
    if taken.plugins:
        of_plugins = TrainingConfig.groups().keys() - {"agent"}
        names += [
            name
            for name, field in fields.items()
            if name.partition(".")[0] in of_plugins and about(field, "option")
        ]
    options = {
        name: _option(name, fields[name], taken.flags.get(name, "")) for name in names
    }
    hints = get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in inspect.signature(command).parameters.items()
        if name != _GIVEN
    ]
    own += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )
        for name, annotation in taken.more.items()
    ]

    def run(**values: Any) -> Any:
        given = {name: values.pop(options[name].name) for name in names}
        values = {name: v for name, v in values.items() if name not in taken.more}
        kept = {
            name: value
            for name, value in given.items()
            if value is not options[name].default.default and value != []
        }
        return command(**values, **{_GIVEN: kept})

    every = [*options.values(), *own]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in every]
    )
    run.__annotations__ = {each.name: each.annotation for each in every}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(name: str, field: Any, flag: str | None) -> inspect.Parameter:
    """Return a parameter with the option ``flag``, or the usual one, of a setting."""
    usual = f"--{name.replace('.', '-').replace('_', '-')}"
    flag = flag or about(field, "option") or usual
    kind = _kind(field.annotation, field)
    text = field.description.partition(". ")[0].rstrip(".").replace("`", "")
    if kind == list[str] | None:
        text += ". Can be given again"
    default = False if kind is bool else None
    return inspect.Parameter(
        flag.partition("/")[0].lstrip("-").replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=typer.Option(
            default,
            flag,
            help=f"{text}.",
            metavar=about(field, "metavar"),
            autocompletion=_COMPLETED.get(name),
            rich_help_panel=about(field, "panel"),
        ),
        annotation=kind,
    )


def _kind(annotation: Any, field: Any) -> Any:
    """Return the type of an option's value. Texts are parsed by the settings."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(a for a in get_args(annotation) if a is not type(None))
    if isinstance(field.get_default(), tuple | dict):
        return list[str] | None
    if annotation is bool:
        return bool if "/" not in str(about(field, "option")) else bool | None
    is_read = any(type(each).__name__ == "BeforeValidator" for each in field.metadata)
    is_choice = get_origin(annotation) is Literal
    plain = annotation in (int, float) or is_choice
    return annotation | None if plain and not is_read else str | None
