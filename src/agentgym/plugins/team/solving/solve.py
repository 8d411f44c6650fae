"""solve: send one request to the coding team, and get its solution."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.core.background import in_background
from agentgym.errors import UsageError
from agentgym.plugins.team.solving.session import Human, TeamSession
from agentgym.plugins.team.solving.solution import Solution

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from agentgym.core.prices import Prices
    from agentgym.plugins.team.solving.events import Listener
    from agentgym.sandbox import SandboxConfig


def solve(
    problem: str,
    *,
    model: "str | BaseChatModel | None" = None,
    models: "Mapping[str, str | BaseChatModel] | None" = None,
    agent: Any = None,
    files: Mapping[str, str] | None = None,
    language: str = "python",
    human: Human | None = None,
    max_rounds: int = 3,
    fallback: "str | BaseChatModel | None" = None,
    listener: "Listener | None" = None,
    prices: "Prices | None" = None,
    sandbox: "SandboxConfig | None" = None,
) -> Solution:
    """Let the coding team solve a problem, and return its files, tests and review.

    ::

        solution = solve("Write a function that reverses a string", model="openai:…")
        print(solution.outcome, solution.files["solution.py"])

    Args:
        problem: The request.
        model: The model for all roles: ``openai:NAME``, ``anthropic:NAME``, a server's
            address, a folder, or ``nano`` (the model in AgentGym); or a LangChain chat
            model.
        models: Models by role (supervisor, generator, reviewer, executor). A role in
            ``models`` does not use ``model``.
        agent: A trained agent, or its name, instead of ``model``.
        files: The project's files: relative path to text. The team may not change the
            tests in them.
        language: Language of new files.
        human: Function that asks a person a question of the team: whether to keep a
            risky edit, when the generator repeats code that failed, and after the last
            failed round. Its argument is a dict with ``kind`` and ``text``. It returns
            ``yes``, ``no`` or an instruction of two or more words; None counts as
            ``no``. A risky edit is undone unless the answer is ``yes``. After the other
            questions, ``no`` ends the work. The function may be async.
        max_rounds: Maximum number of turns of the generator.
        fallback: A model for each role whose own model has failed twice.
        listener: Called with each
            :class:`~agentgym.plugins.team.solving.events.TeamEvent`.
        prices: Prices of the models' tokens, to compute the cost.
        sandbox: Settings of the sandbox that runs the code; the defaults if None.

    Returns:
        The solution. If the work ended early, it has all files written so far.

    Raises:
        UsageError: The problem is empty, or a model, role or language cannot be used.
        SandboxError: The path of a file is absolute or leaves the project.
        MissingExtraError: A package is not installed.
    """
    with open_session(
        model=model,
        models=models,
        agent=agent,
        files=files,
        language=language,
        human=human,
        max_rounds=max_rounds,
        fallback=fallback,
        listener=listener,
        prices=prices,
        sandbox=sandbox,
    ) as session:
        return in_background(session.ask(problem))


def open_session(
    *,
    model: "str | BaseChatModel | None" = None,
    models: "Mapping[str, str | BaseChatModel] | None" = None,
    agent: Any = None,
    fallback: "str | BaseChatModel | None" = None,
    **options: Any,
) -> TeamSession:
    """Return a team that answers several requests and keeps its files between them.

    The arguments and errors are those of :func:`solve`, without ``problem``.
    """
    from agentgym.plugins.team.solving.models import chat_models

    found, notes = chat_models(model, models, agent)
    spare = None
    if fallback is not None:
        spare = chat_models(fallback)[0]["generator"]
    return TeamSession(found, fallback=spare, notes=tuple(notes), **options)


def read_files(paths: list[Path]) -> dict[str, str]:
    """Return each text by its path in the working folder, or by its name."""
    found: dict[str, str] = {}
    here = Path.cwd().resolve()
    for path in paths:
        whole = path.expanduser().resolve()
        is_below = whole.is_relative_to(here)
        name = whole.relative_to(here).as_posix() if is_below else whole.name
        if name in found:
            raise UsageError(f"Two files are named {name}; give one of them.")
        try:
            found[name] = whole.read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"Cannot read {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not a text file in UTF-8.") from None
    return found
