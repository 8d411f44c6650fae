"""Import users' agents, find their ``module:name``, and detect their framework.

A factory is a function or class that returns an agent, e.g. ``make_agent(llm, tools)``.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from agentgym.core.agent import Trained, is_command
from agentgym.core.background import in_background, no_running_loop
from agentgym.core.import_hints import is_users, raised_at
from agentgym.core.openai import NO_KEY
from agentgym.core.registry import load_object
from agentgym.errors import AgentGymError, UnsupportedError, UsageError, message_of
from agentgym.integrations.base import FrameworkAdapter
from agentgym.integrations.projects import named_in_project, prepare_project
from agentgym.integrations.redirect import GUARD, AgentRanError, refusing_calls, watch
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.programs.program import ProgramCommand
from agentgym.security.redaction import get_logger

DEFAULT = "langchain"
"""Name of the framework that is used if the settings do not name a framework."""

MODELS = ("llm", "model", "model_client", "chat_model")
"""Parameter names under which a factory receives the model."""

logger = get_logger(__name__)

_REFERENCE = re.compile(r"(?:[^\W\d][\w.]*|[^:]+\.py):[^\W\d]\w*")
_AS_PROGRAM = 'A loop of your own is trained as a program: --command "python app.py".'
_REQUEST = "{task}"  # the place of the user's request in the texts of an agent
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_KEYS = (
    *("ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"),
    *("GROQ_API_KEY", "MISTRAL_API_KEY", "OPENAI_API_KEY"),
)
"""Keys that clients of models may need when an episode creates them."""
_KEY = re.compile(r"\b[A-Z][A-Z0-9_]*_(?:KEY|TOKEN|MODEL)\b")
"""An environment variable for a key or a model, as error messages name it."""
_PROGRAMS = {"ag2": "AG2", "autogen": "AG2 Classic, the package autogen"}
"""Frameworks without an adapter, by top-level module: their agents are programs."""


def is_reference(text: str) -> bool:
    """Return whether a text is ``module:name``, ``file.py:name`` or a command.

    A text that is the path of an existing file does not count as ``module:name``.
    """
    is_module = bool(_REFERENCE.fullmatch(text)) and not os.path.exists(text)
    return is_module or is_command(text)


def load_agent(reference: str, *, option: str = "--agent", folder: str = "") -> Any:
    """Import the agent or factory ``module:name``, or parse a program's command.

    API keys that are not set get a placeholder, because some model objects require one;
    training does not call their providers. The module may be the path of a file. If it
    runs the agent, its import ends at that line.
    """
    if is_command(reference):
        program = ProgramCommand.parse(reference).located(
            Path(folder) if folder else None
        )
        program.require()
        return program
    watch()
    folder = prepare_project(reference, folder)
    for key in _KEYS:
        os.environ[key] = os.environ.get(key) or NO_KEY
    module, _, name = reference.partition(":")
    ran = AgentRanError(module)
    load = partial(load_object, reference, option=option, folder=folder)
    try:
        with refusing_calls(ran), no_running_loop():
            try:
                return _with_keys(load, module)
            except Exception:
                if not (found := ran.module) or name not in vars(found):
                    raise
                _end_before(found, ran.line, name)
                logger.warning("%s runs the agent: its import ends there.", module)
            return load()
    except AgentGymError as error:
        vars(error).pop("__notes__", None)  # LangGraph's, of the task that failed
        raise
    except SystemExit as end:
        raise UsageError(
            f"{option} {reference}: {module} calls sys.exit({end.code!r}) as it is "
            f"imported. {GUARD}"
        ) from None
    except Exception as error:
        raise UsageError(
            f"Cannot import {option} {reference}: {raised_at(error)}"
            f"{type(error).__name__}: {message_of(error).removesuffix('.')}."
        ) from error


def _end_before(ran: ModuleType, line: int, name: str) -> None:
    """Import a module again, up to the line that runs its agent, without that run."""
    tree = ast.parse(inspect.getsource(ran))
    tree.body = [each for each in tree.body if (each.end_lineno or 0) < line]
    assert ran.__spec__ is not None
    again = sys.modules[ran.__name__] = module_from_spec(ran.__spec__)
    exec(compile(tree, str(ran.__file__), "exec"), vars(again))
    if name not in vars(again):  # the statement that runs it makes it
        sys.modules[ran.__name__] = ran


def _with_keys[T](function: Callable[[], T], name: str) -> T:
    """Call a function; if it fails over an API key, change that key and try again.

    A key that it asks for gets a placeholder. A placeholder is left out if it selects a
    provider whose other settings are missing.
    """
    left_out: set[str] = set()
    imported = set(sys.modules)
    try:
        while True:
            try:
                return function()
            except AgentGymError:
                raise
            except Exception as error:
                if not _change_key(str(error), left_out, name):
                    raise
            for module in sys.modules.keys() - imported:  # they may have read the key
                if is_users(getattr(sys.modules[module], "__file__", None) or "<"):
                    del sys.modules[module]
    finally:
        for key in left_out:  # an episode may need it
            os.environ.setdefault(key, NO_KEY)


def _change_key(error: str, left_out: set[str], name: str) -> bool:
    """Set or remove the key that an error is about; return whether there is one."""
    unset = [key for key in _KEY.findall(error) if not os.environ.get(key)]
    if unset:
        os.environ[unset[0]] = NO_KEY
        logger.warning(
            "%s needs %s, which is not set: it gets a placeholder, with which no "
            "provider answers. Training answers the calls of models by itself.",
            *(name, unset[0]),
        )
        return True
    key = next((key for key in _KEYS if _is_about(key, error)), None)
    if key is None or key in left_out:
        return False
    left_out.add(key)
    del os.environ[key]
    return True


def _is_about(key: str, error: str) -> bool:
    """Return whether an error names the provider of a key that has a placeholder."""
    provider = key.removesuffix("API_KEY")
    return os.environ.get(key) == NO_KEY and bool(re.search(rf"\b{provider}", error))


def load_trained(trained: Trained, agent: Any, export: str) -> Any:
    """Return the agent or factory of the user that is exported with the trained model.

    If ``agent`` is an object, return it; if it is a ``module:name``, import it. If it
    is None, import the agent that was trained, or return None for the default agent.
    """
    if agent is not None:
        return load_agent(agent) if isinstance(agent, str) else agent
    reference, folder = trained.spec.agent, trained.folder
    if reference is None:
        return None
    try:
        found = load_agent(reference)
    except UsageError as error:
        where = f"in {folder}, where it was trained" if folder else "in its own folder"
        raise UsageError(
            f"{trained.name} is your agent {reference}. {error} Load it {where}, or "
            f"give your object: {export}(agent=...)."
        ) from None
    if folder and folder != os.getcwd():
        logger.warning(
            "%s was trained in %s; its agent %s is now that of this folder, %s",
            *(trained.name, folder, reference, os.getcwd()),
        )
    return found


def is_of(adapter: FrameworkAdapter, found: Any) -> bool:
    """Return whether the adapter's framework defines the class of an object.

    A class that is derived from a framework's class also counts.
    """
    roots = {base.__module__.partition(".")[0] for base in type(found).__mro__}
    return any(map(adapter.owns, roots))


def _root_of(value: Any) -> str:
    name = value.__name__ if inspect.ismodule(value) else None
    return str(name or getattr(value, "__module__", None) or "").partition(".")[0]


def takes_model(found: Any) -> bool:
    """Return whether ``found`` is a factory with a parameter for the model."""
    return _takes(found, "model")


def takes_tools(found: Any) -> bool:
    """Return whether ``found`` is a factory with a parameter for the tools."""
    return _takes(found, "tools")


def _takes(found: Any, what: str) -> bool:
    if not _is_factory(found):
        return False
    try:
        named = _arguments(found, "")
    except UsageError:  # building it later raises the error
        return False
    return named is None or what in named.values()


def resolve_framework(
    reference: str, framework: str | None = None, folder: str = ""
) -> str:
    """Return the name of the framework of an agent, factory or command.

    ``framework`` is the user's choice; None if the user chose none. It is only used for
    a factory, because the class of an agent shows its framework. Without a choice, the
    factory is called. If that fails, the framework is that of its module's objects.
    """
    found = load_agent(reference, folder=folder)
    if (adapter := _adapter_of(found)) is not None:
        return adapter.name
    if not _is_factory(found):
        raise _not_an_agent(reference, found)
    if framework is not None:
        return framework
    try:
        return build(reference, folder)[0].name
    except AgentGymError:  # building the agent for training raises it again
        return _likely_adapters(found)[0].name


def build(reference: str, folder: str = "") -> tuple[FrameworkAdapter, Any]:
    """Import an agent, or let its factory create it with a placeholder model.

    Return the adapter of the agent's framework, and the agent. A factory that needs a
    model is called with that of each framework that its module uses, until it returns
    an agent.
    """
    found = load_agent(reference, folder=folder)
    problem: AgentGymError | None = None
    for likely in _likely_adapters(found) if takes_model(found) else [None]:
        try:
            llm = None if likely is None else likely.stand_in()
            made = make(found, reference, llm=llm, tools=[])
        except AgentGymError as error:
            problem = problem or error
            continue
        if (adapter := _adapter_of(made)) is not None:
            return adapter, made
        problem = problem or _not_an_agent(reference, made)
    assert problem is not None
    raise problem


def _not_an_agent(reference: str, found: Any) -> UnsupportedError:
    _refuse_programs(found, reference)
    kinds = ", ".join(name for name in FRAMEWORKS.names() if name != "native")
    if inner := _agent_in(found):
        called = "()" if type(found).__name__ == reference.partition(":")[2] else ""
        return UnsupportedError(
            f"{reference} has the type {type(found).__name__}; its {inner} is an agent."
            f" Give it a name in the module, and name that: agent = "
            f"{reference.partition(':')[2]}{called}.{inner}"
        )
    return UnsupportedError(
        f"{reference} gave {kind_of(found)}, which is not an agent of "
        f"{kinds}. Name a compiled graph, an AssistantAgent or team, an Agent, Task or "
        f"Crew, or a function that returns an agent. {_AS_PROGRAM}"
    )


def _agent_in(found: Any) -> str:
    """Return the name of an attribute of an object that is an agent; "" if none is."""
    parts = getattr(found, "__dict__", {})
    return next((name for name in parts if _adapter_of(parts[name])), "")


def _refuse_programs(found: Any, reference: str) -> None:
    """Raise if an object is an agent of a framework whose agents run as programs."""
    for root in map(_root_of, type(found).__mro__):
        if root in _PROGRAMS:
            module = reference.partition(":")[0]
            raise UnsupportedError(
                f"{reference} is an agent ({type(found).__name__}) of "
                f"{_PROGRAMS[root]}, not of Microsoft's AutoGen (autogen_agentchat). "
                "It is trained as a program: let it take its model from OPENAI_MODEL "
                "and OPENAI_BASE_URL, its request from standard input, and print its "
                f'answer. Then: agentgym train --command "python -m {module}" '
                "--tasks tasks.jsonl"
            )


def _likely_adapters(found: Any) -> list[FrameworkAdapter]:
    """Return the adapters of a factory's module's frameworks; else the default one."""
    module = sys.modules.get(getattr(found, "__module__", None) or "")
    roots = {_root_of(value) for value in vars(module).values()} if module else set()
    adapters = [FRAMEWORKS.get(name) for name in FRAMEWORKS]
    likely = [each for each in adapters if any(map(each.owns, roots))]
    return likely or [FRAMEWORKS.get(DEFAULT)]


def make(found: Any, origin: str, *, llm: Any, tools: list[Any]) -> Any:
    """Return the agent that a factory creates; return any other object unchanged.

    The model is passed as the parameter ``llm``, ``model``, ``model_client`` or
    ``chat_model``, and the tools as ``tools``. A factory with two required parameters
    of other names gets the model and the tools by position. ``origin`` names the
    factory in error messages.
    """
    if not _is_factory(found):
        return found
    named = _arguments(found, origin)
    if named is None:
        made = _called(origin, found, llm, tools)
    else:
        given = {"model": llm, "tools": tools, "config": {}}
        values = {name: given.get(what, what) for name, what in named.items()}
        places = [name for name, what in named.items() if what.startswith("{")]
        try:
            made = _called(origin, found, **values)
        except UsageError as error:
            raise (_unpassed(origin, places) if places else error) from None
        adapter = _adapter_of(made)
        if places and not (adapter and adapter.fills_placeholders):
            raise _unpassed(origin, places)
    _refuse_programs(made, origin)
    if made is None or (_adapter_of(made) is None and _agent_in(made)):
        raise _not_an_agent(origin, made)
    return made


def _called(origin: str, factory: Callable[..., Any], *args: Any, **named: Any) -> Any:
    try:
        made = _with_keys(lambda: factory(*args, **named), origin)
        if inspect.isawaitable(made):
            made = in_background(made)
        if isinstance(made, tuple):  # an agent, then its client or its settings
            made = next(filter(_adapter_of, made), made)
        # A class decorated with CrewAI's @CrewBase builds its crew.
        crew = getattr(made, "crew", None) if inspect.isclass(factory) else None
        return crew() if inspect.isroutine(crew) else made
    except AgentGymError:
        raise
    except Exception as error:
        raise UsageError(
            f"{origin} failed to make the agent: {type(error).__name__}: "
            f"{message_of(error).removesuffix('.')}."
        ) from error


def _is_factory(found: Any) -> bool:
    is_plain = inspect.isroutine(found) or inspect.isclass(found)
    return is_plain or (callable(found) and _adapter_of(found) is None)


def _is_name(parameter: inspect.Parameter) -> bool:
    """Return whether a factory's optional parameter takes a model's name."""
    hint, default = parameter.annotation, parameter.default
    if default is parameter.empty:
        return False
    plain = hint in (str, "str", str | None, "str | None", "Optional[str]")
    return plain or (hint is parameter.empty and isinstance(default, str))


def _arguments(found: Any, origin: str) -> dict[str, str] | None:
    """Map the names of a factory's parameters to ``model``, ``tools`` or ``config``.

    A text that is required otherwise is mapped to a placeholder, e.g. ``{topic}``: the
    user's request if it is the only one. Returns None if the model and the tools are to
    be passed by position.
    """
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return {}
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in _BY_NAME]
    models = (p.name for p in parameters if p.name in MODELS and not _is_name(p))
    named = dict.fromkeys(models, "model")
    named |= {p.name: "tools" for p in parameters if p.name == "tools"}
    named |= {name: "config" for name in needed if name == "config"}
    unknown = [name for name in needed if name not in named]
    texts = [p.name for p in parameters if p.annotation in (str, "str")]
    positional = [p for p in parameters if p.kind is p.POSITIONAL_ONLY]
    is_pair = len(unknown) == 2 == len(needed) and not set(unknown) <= set(texts)
    if len(positional) == 2 or is_pair:
        return None
    if positional:
        raise _unpassed(origin, ["its arguments by position"])
    alone = len(unknown) == 1
    return named | {name: _REQUEST if alone else f"{{{name}}}" for name in unknown}


def _unpassed(origin: str, names: Sequence[str]) -> UsageError:
    return UsageError(
        f"{origin} requires {', '.join(map(repr, names))}, which training does not "
        f"pass. Let it take nothing, or `llm`, or `llm` and `tools`. {_AS_PROGRAM}"
    )


def reference_of(agent: Any) -> str:
    """Return the ``module:name`` from which other processes import an agent or factory.

    For a program, return its command. A text without a colon is looked up as the name
    of an agent in the project's files.
    """
    is_text = isinstance(agent, str)
    if isinstance(agent, ProgramCommand) or (is_text and is_command(agent)):
        return ProgramCommand.parse(str(agent)).located().reference
    if isinstance(agent, str):
        return named_in_project(agent)
    script = sys.modules.get("__main__")  # multiprocessing uses another name too
    for name, module in list(sys.modules.items()):
        if module is script or getattr(module, "__file__", None) is None:
            continue
        for key, value in list(vars(module).items()):
            if value is agent:
                return f"{name}:{key}"
    raise UsageError(
        f"The {type(agent).__name__} cannot be imported by the processes that training "
        "starts. Make it, or a function that returns it, at the top of a module of its "
        'own, and give that: agent="my_module:agent".'
    )


def named_tools(reference: str, option: str, folder: str = "") -> Any:
    """Return the tools at ``module:name``.

    Tools of a framework are converted to AgentGym tools. Other objects are returned
    unchanged. Error messages name the command-line option ``option``.
    """
    found = load_agent(reference, option=option, folder=folder)
    items = list(found) if isinstance(found, list | tuple) else [found]
    adapters = [_adapter_of(item) for item in items]
    if not any(adapters):
        return found
    tools: list[Any] = []
    for item, adapter in zip(items, adapters, strict=True):
        tools += [item] if adapter is None else adapter.tools_of(item)
    return tools


def require_own_tools(reference: str) -> None:
    """Raise UnsupportedError if an agent is given its tools, and has none."""
    if takes_tools(load_agent(reference)):
        raise UnsupportedError(
            f"{reference} is given its tools, and has none of its own: say which they "
            "are with --tools-from module:TOOLS."
        )


def kind_of(value: Any) -> str:
    """Return an object's type as text for messages, e.g. ``a str``."""
    name = type(value).__name__
    return "None" if value is None else f"a{'n' * (name[0] in 'AEIOaeio')} {name}"


def _adapter_of(found: Any) -> FrameworkAdapter | None:
    if isinstance(found, ProgramCommand):
        return FRAMEWORKS.get("command")
    adapters = map(FRAMEWORKS.get, FRAMEWORKS)
    return next((each for each in adapters if is_of(each, found)), None)


def values_for(reference: str | None, option: str) -> Callable[[Any], Any]:
    """Import the function that the user gave with an option, e.g. ``--inputs``.

    Without a reference, return a function that always returns None.
    """
    if reference is None:
        return lambda given: None
    found = load_agent(reference, option=option)
    if not inspect.isroutine(found):
        raise UsageError(
            f"{option} {reference} is a {type(found).__name__}, not a function."
        )
    function: Callable[[Any], Any] = found
    return function
