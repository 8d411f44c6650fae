"""solve: let the coding team work on a request, with any models."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentgym.core.background import in_background
from agentgym.errors import (
    MissingExtraError,
    NotFoundError,
    UsageError,
    message_of,
    unreadable,
)
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.reference import PROVIDERS, is_local, is_remote, resolve_model
from agentgym.packs.kit.code_rewards.static_checks import require_checks
from agentgym.plugins.team.coding_team.environment import MAX_ROUNDS, TeamEnvironment
from agentgym.plugins.team.coding_team.languages import LANGUAGES, of_path
from agentgym.sandbox import Sandbox, SandboxConfig
from agentgym.sandbox.commands import check_files
from agentgym.sandbox.languages import PYTHON, toolchain

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from agentgym.core.prices import Prices
    from agentgym.plugins.team.solving.events import Listener, Usage

Outcome = Literal["passed", "failed", "untested", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The result of one request to a team.

    Attributes:
        outcome: ``failed`` if a test failed, a serious finding of the review is left,
            or no file was written. Otherwise ``passed`` if tests passed, ``untested``
            without tests. ``stopped`` if the work ended early.
        files: All files of the project: relative path to text.
        changed: Paths of the files that differ from the user's, sorted.
        tests: Counts of ``passed`` and ``failed`` tests, and the ``failures``; None if
            no test has run since the last edit.
        findings: Findings of the review: ``path``, ``line``, ``severity``, ``message``.
        history: The turns of all roles: ``role``, ``round`` (number of the generator's
            turns so far), ``did`` (summary) and ``said`` (the role's last message).
        cost: US dollars; None if no prices were given.
        error: Why the work ended early; empty if it did not, or if a person stopped it.
    """

    problem: str
    outcome: Outcome
    files: Mapping[str, str]
    changed: tuple[str, ...] = ()
    tests: Mapping[str, Any] | None = None
    findings: tuple[Mapping[str, Any], ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    usage: "Mapping[str, Usage]" = field(default_factory=dict)
    cost: float | None = None
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the outcome is ``passed``."""
        return self.outcome == "passed"

    def save(self, folder: str | Path) -> list[Path]:
        """Write the changed files into a folder, and return their paths.

        Existing files are replaced. Nothing outside of the folder is written, even
        through symbolic links.

        Raises:
            UsageError: A file cannot be written.
        """
        root = Path(folder).expanduser().resolve()
        kept = {path: self.files[path] for path in self.changed if path in self.files}
        check_files(kept)
        written = []
        for name, text in kept.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.parent.resolve().is_relative_to(root) or path.is_symlink():
                    raise UsageError(
                        f"{path} is outside of {root}, by a link; it is not written."
                    )
                path.write_text(text, encoding="utf-8", newline="")
            except OSError as error:
                raise UsageError(f"Cannot write {path}: {error.strerror}.") from None
            written.append(path)
        return written

    def record(self) -> dict[str, Any]:
        """Return the solution as a dict that can be written as JSON."""
        made = asdict(self)
        made["usage"] = {role: used._asdict() for role, used in self.usage.items()}
        return made


Human = Callable[[dict[str, Any]], Any]
"""Function that asks a person a question of the team. The question is a dict with
``kind``, ``text`` and in some cases ``files``. The function returns the answer as text;
None counts as ``no``. It may be async."""

MOST_CHARACTERS = 20_000
"""Maximum number of characters of a request to the team."""

_STEPS = 1_000


class TeamSession(AbstractContextManager["TeamSession"]):
    """A coding team that keeps its files and its conversation between requests.

    The arguments are those of :func:`agentgym.solve`, but the models are LangChain's
    chat models: one for each role, or one for all. ``notes`` are messages for the user
    that each solution contains.

    Attributes:
        notes: The argument ``notes``, plus a sentence if the linters are not installed.

    Raises:
        UsageError: The language is unknown, a number is out of range, or a file is not
            text.
        SandboxError: The path of a file is absolute or leaves the project.
        SandboxUnavailableError: The toolchain of a language is missing; the message
            names its package.
    """

    def __init__(
        self,
        models: "Mapping[str, BaseChatModel] | BaseChatModel",
        *,
        files: Mapping[str, str] | None = None,
        language: str = "python",
        human: Human | None = None,
        max_rounds: int = MAX_ROUNDS,
        fallback: "BaseChatModel | None" = None,
        listener: "Listener | None" = None,
        prices: "Prices | None" = None,
        notes: tuple[str, ...] = (),
        sandbox: SandboxConfig | None = None,
    ) -> None:
        from langgraph.checkpoint.memory import InMemorySaver

        from agentgym.integrations.langchain import LangChainAdapter
        from agentgym.plugins.team.coding_team.graph import build_team
        from agentgym.plugins.team.solving.events import TeamEvents

        if language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise UsageError(f"No language is named {language!r}; known: {known}.")
        if max_rounds < 1:
            raise UsageError(f"max_rounds is {max_rounds}: give 1 or more.")
        given = dict(files or {})
        check_files(given)
        if odd := [path for path, text in given.items() if not isinstance(text, str)]:
            raise UsageError(f"The file {odd[0]} must be given as text (str).")
        found = {language, *(of.name for path in given if (of := of_path(path)))}
        needed = sorted(found - {PYTHON})
        for name in needed:
            toolchain(name)
        config = sandbox or SandboxConfig()
        config = replace(config, languages=(*config.languages, *needed))
        self._sandbox = Sandbox(config)
        self._project = TeamEnvironment(
            given,
            self._sandbox,
            max_rounds=max_rounds,
            target=LANGUAGES[language].target,
        )
        self._language = LANGUAGES[language]
        self._human = human
        self._prices = prices
        self.notes = notes
        try:
            require_checks("The reviewer's linters")
        except MissingExtraError as error:
            self.notes += (f"Nothing is reviewed. {error}",)
        self._events = TeamEvents(listener)
        self._graph = build_team(
            models,
            [
                LangChainAdapter().framework.bound(tool)
                for tool in self._project.tools()
            ],
            fallback=fallback,
            human=human is not None,
            checkpointer=InMemorySaver(),
        )
        self._problem = ""
        self._history: list[Mapping[str, Any]] = []

    async def ask(self, problem: str) -> Solution:
        """Let the team work on a request, and return its solution.

        The work ends early after an error, or if the function ``human`` of this session
        answers ``no`` to a question, except one about a risky edit. The solution then
        has all files written so far.
        """
        asked = problem.strip()
        if not asked:
            raise UsageError("The problem is empty: describe the task of the code.")
        if len(asked) > MOST_CHARACTERS:
            raise UsageError(
                f"The problem has {len(asked):,} characters, and at most "
                f"{MOST_CHARACTERS:,} are read: put long texts into a file."
            )
        if self._problem:  # an earlier request
            self._project.begin()
        self._problem = asked
        self._history = []
        self._events.begin()
        if self._language.name != PYTHON:
            name, target = self._language.name, self._language.target
            asked = f"{asked}\nLanguage: {name}. New code belongs into {target}."
        try:
            outcome = await self._run({"messages": [("user", asked)]})
        except Exception as error:  # noqa: BLE001 - all that was written is kept
            return self.so_far(_why(error))
        if outcome == "failed" and self._events.no_answer:
            return self.so_far(f"No model answered. {self._events.no_answer}")
        return self._solution(outcome)

    def so_far(self, why: str) -> Solution:
        """Return the work so far with the outcome ``stopped`` and the error ``why``."""
        return self._solution("stopped", why)

    async def _run(self, given: Any) -> Outcome:
        """Run the team's graph, and answer its questions; return the outcome."""
        from langgraph.types import Command

        from agentgym.plugins.team.solving.events import TeamEvent

        config: Any = {
            "configurable": {"thread_id": "team"},
            "recursion_limit": _STEPS,
            "callbacks": [self._events],
        }
        outcome: Outcome = "stopped"
        while given is not None:
            questions: list[Any] = []
            steps = self._graph.astream(given, config, stream_mode="updates")
            async for step in steps:
                for node, update in step.items():
                    if node == "__interrupt__":
                        questions += update
                        continue
                    outcome = (update or {}).get("outcome", outcome)
                    for turn in (update or {}).get("history", ()):
                        self._history.append(turn)
                        event = TeamEvent("turn", turn["role"], turn["did"])
                        self._events.report(event)
            given = None
            if questions:
                answers = {q.id: await self._answer(q.value) for q in questions}
                given = Command(resume=answers)
        return outcome

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        answer = None if self._human is None else self._human(question)
        return {"answer": await answer if inspect.isawaitable(answer) else answer}

    def _solution(self, outcome: Outcome, error: str = "") -> Solution:
        work = json.loads(self._project.team_state())
        usage = dict(self._events.usage)
        cost = None
        if (prices := self._prices) is not None:
            cost = sum(
                prices.cost(used.prompt_tokens, used.response_tokens)
                for used in usage.values()
            )
        changed = self._project.changed_files()
        return Solution(
            problem=self._problem,
            outcome=outcome,
            files=work["files"],
            changed=tuple(sorted(changed)),
            tests=work["tests"],
            findings=tuple(work["findings"]),
            history=tuple(self._history),
            usage=usage,
            cost=cost,
            notes=self.notes,
            error=error,
        )

    def close(self) -> None:
        """Close the sandbox."""
        self._sandbox.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _why(error: Exception) -> str:
    """Return a sentence about the error that ended a team's work early."""
    from agentgym.plugins.team.coding_team.graph import is_unreachable

    request = getattr(error, "request", None)  # of OpenAI's and Anthropic's packages
    if is_unreachable(error) and request is not None:
        return (
            f"No model answered: no server listens at {request.url.copy_with(path='/')}"
            ". Start it, or name another model."
        )
    return f"{type(error).__name__}: {message_of(error)}"


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
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"Cannot read {path}: {unreadable(error)}.") from None
    return found


ROLES = ("supervisor", "generator", "reviewer", "executor")
MAX_TOKENS = 4_096
"""Maximum number of tokens of one answer."""
REQUEST_S = 180.0
_POLICY_TOKENS = 160

_SMALL = (
    "The shipped policy chooses tools and fills in their arguments; it knows little "
    "English and cannot write code. The rules of the team take the turns that it "
    "cannot use. Use it to try the team out, or train it for the other roles and give "
    "the generator a model that writes: --models generator=openai:NAME."
)
_WHICH = (
    "Name a model: openai:NAME or anthropic:NAME with its key in the environment, the "
    "address of an OpenAI-compatible server, http://host:8000/v1#NAME, a folder with a "
    "model, a trained agent, or nano, the shipped policy."
)


def chat_models(
    model: "str | BaseChatModel | None" = None,
    models: "Mapping[str, str | BaseChatModel] | None" = None,
    agent: Any = None,
) -> "tuple[dict[str, BaseChatModel], list[str]]":
    """Return each role's chat model, by default ``model`` or ``agent``, and notes."""
    FRAMEWORKS.get("langchain").check()
    by_role = dict(models or {})
    for role in by_role:
        if role not in ROLES:
            raise NotFoundError("role", role, ROLES)
    if model is not None and agent is not None:
        raise UsageError(
            "Give a model or a trained agent for the other roles, not both."
        )
    usual = model if agent is None else agent
    missing = [role for role in ROLES if role not in by_role]
    if missing and (usual is None or usual == ""):
        raise UsageError(f"No model for {', '.join(missing)}. {_WHICH}")
    named: dict[str, Any] = {role: by_role.get(role, usual) for role in ROLES}
    unique = {_key(each): each for each in named.values()}
    made = {key: _chat_model(each) for key, each in unique.items()}
    notes = [_SMALL] if any(map(_is_small, unique.values())) else []
    return {role: made[_key(each)] for role, each in named.items()}, notes


def _key(named: Any) -> Any:
    return named if isinstance(named, str) else id(named)


def _is_small(named: Any) -> bool:
    from agentgym.train.trained_agent import TrainedAgent

    if isinstance(named, TrainedAgent):
        named = named.provenance.config.get("model", "nano")
    return bool(named == "nano")


def _chat_model(named: Any) -> "BaseChatModel":
    from langchain_core.language_models import BaseChatModel

    from agentgym.train.trained_agent import TrainedAgent

    if isinstance(named, BaseChatModel):
        return named
    if isinstance(named, TrainedAgent):
        return named.chat_model()
    if not isinstance(named, str) or not named.strip():
        raise UsageError(f"{named!r} names no model. {_WHICH}")
    return _of_server(named) if is_remote(named) else _of_policy(named)


def _of_server(spec: str) -> "BaseChatModel":
    endpoint = resolve_model(spec)
    if len(endpoint.servers) > 1:
        raise UsageError(f"{spec!r} names several servers; a role asks one: name it.")
    [address] = endpoint.servers
    key = endpoint.api_key or "none"  # a proxy may have its own
    if spec.lower().startswith("anthropic:"):
        try:
            from langchain_anthropic import ChatAnthropic
        except ImportError:
            raise MissingExtraError("anthropic", "A model of Anthropic's") from None
        made: BaseChatModel = ChatAnthropic(
            model=endpoint.model,
            api_key=key,
            base_url=address.removesuffix("/v1"),  # which the SDK adds
            max_tokens=MAX_TOKENS,
            timeout=REQUEST_S,
        )
        return made
    from langchain_openai import ChatOpenAI

    is_openai = address == PROVIDERS["openai"]
    name = "max_completion_tokens" if is_openai else "max_tokens"
    limit: dict[str, Any] = {name: MAX_TOKENS}
    return ChatOpenAI(
        model=endpoint.model,
        base_url=address,
        api_key=lambda: key,
        timeout=REQUEST_S,
        **limit,
    )


def _of_policy(named: str) -> "BaseChatModel":
    """Load a trained agent or a local model, and return it as a chat model."""
    from agentgym.engines.local.support import load_policy
    from agentgym.integrations.client_adapter import TrainedEndpoint
    from agentgym.integrations.langchain.models import RoleChatOpenAI
    from agentgym.serving.in_process import PolicyTransport
    from agentgym.train.trained_agent import TrainedAgent
    from agentgym.train.versions import AGENT_FILE

    is_saved = os.path.isfile(os.path.join(os.path.expanduser(named), AGENT_FILE))
    if named == "nano" or (is_local(named) and not is_saved):
        policy = load_policy(named)
        usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": _POLICY_TOKENS}
        answers = PolicyTransport(policy, policy.model_name, **usual)
        endpoint = TrainedEndpoint(policy.model_name, **usual, transport=answers)
        return RoleChatOpenAI.at(endpoint, None)
    return TrainedAgent.load(named).chat_model()
