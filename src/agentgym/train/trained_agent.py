"""TrainedAgent: weights, prompt, tools and metrics of a trained agent, in a folder."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, get_args

from pydantic import Field

from agentgym.core.agent import AgentSpec
from agentgym.core.files import parse_json, write_json
from agentgym.core.notebook import Shown
from agentgym.core.policy import Policy
from agentgym.core.records import Record
from agentgym.core.task import TaskSource
from agentgym.core.template_settings import Constrain, TemplateSettings
from agentgym.errors import (
    AgentGymError,
    CorruptModelError,
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate.metrics import Metrics
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models import hub
from agentgym.models.checksums import checksums, refuse_links, refuse_pickles, verify
from agentgym.models.folder import held_roles
from agentgym.rollout.prompt_overrides import WordedPolicy, Wording
from agentgym.scenarios.packs import is_tasks_file
from agentgym.train.versions import AGENT_FILE, Version, Versions, find

if TYPE_CHECKING:
    from agent_framework import Agent as FrameworkAgent
    from agent_framework import Workflow
    from agents import Agent as OpenAIAgent
    from autogen_agentchat.base import ChatAgent, Team
    from crewai import Agent, Crew, Task
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph
    from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
    from pydantic_ai import Agent as PydanticAgent
    from smolagents import ToolCallingAgent
    from strands import Agent as StrandsAgent

    from agentgym.serving.in_process import PolicyTransport

MODEL_FOLDER = "model"


class Provenance(Record):
    """How an agent was trained, with every setting of the run.

    Attributes:
        run: Path of the run's folder during training; empty if there was no run.
        folder: The training process's working directory; empty if unknown.
        is_measured: Whether the agent's metrics are those of held-out tasks; those of
            an interrupted run are of validation tasks.
    """

    base_model: str
    config: dict[str, Any]
    run: str = ""
    folder: str = ""
    steps: int
    is_measured: bool = True
    episodes: int
    created: str
    versions: dict[str, str] = Field(default_factory=dict)


class _Options(TypedDict, total=False):
    """Options of the ``to_`` methods of a trained agent."""

    agent: Any
    """Your own agent that gets the weights; else the one that was trained, if yours."""
    base_url: str | None
    """OpenAI-compatible server that has the weights; else they run in this process."""
    api_key: str | None
    """Key of that server."""


class TrainedAgent(Shown, Record, extra="ignore"):
    """A trained agent, loadable into any supported framework.

    Attributes:
        path: The agent's folder: ``agent.json``, and ``model/`` in Hugging Face format.
        spec: Prompt, tools and limits.
        provenance: How the agent was trained.
        baseline: Held-out metrics before training.
        metrics: Held-out metrics after training.
        checksums: SHA-256 of each file in ``model/``, checked before weights are used.
        constrain: Whether tool calls must follow the tools' schemas when this process
            runs the weights; ``auto`` does the same as training.
    """

    path: Path = Field(exclude=True)
    spec: AgentSpec
    provenance: Provenance
    baseline: Metrics
    metrics: Metrics
    checksums: dict[str, str] = Field(default_factory=dict)
    constrain: Constrain = Field(default="auto", exclude=True)

    @property
    def folder(self) -> str:
        """The training process's working directory; empty if unknown."""
        return self.provenance.folder

    @property
    def model_path(self) -> Path:
        """The folder of weights and tokenizer, for transformers and vLLM."""
        return self.path / MODEL_FOLDER

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the team's agents with their own LoRA adapter; empty if none has."""
        return held_roles(self.model_path)

    @property
    def scenario(self) -> str:
        """The run's setting ``scenario``: a name or path, maybe with ``?`` options."""
        return str(self.provenance.config.get("scenario", self.spec.scenario))

    @property
    def wording(self) -> Wording:
        """The prompts and tool descriptions that replaced the agent's own in training.

        They replace them again when this process runs the weights.
        """
        return Wording.parse(str(self.provenance.config.get("prompts") or ""))

    def same_tasks(self, scenario: str) -> str | None:
        """Return the setting ``scenario`` that loads the agent's tasks file again.

        Args:
            scenario: The scenario's name, or the path of the tasks file.

        Returns:
            The file's path, with options for its tools. Tools that really ran in
            training now get recorded answers. None if ``scenario`` is not the agent's
            tasks file.
        """
        if not is_tasks_file(self.scenario):
            return None
        source = TaskSource.parse(self.scenario)
        if scenario != self.spec.scenario and os.path.abspath(scenario) != source.path:
            return None
        if source.answers == "live":
            source = replace(source, answers="recorded", allow=())
        return str(source)

    @property
    def version(self) -> Version | None:
        """Name and number of this saved version; None outside of ``AGENTGYM_HOME``."""
        return Version.at(self.path)

    @property
    def name(self) -> str:
        """The agent's name: ``coding@3``, ``owner/name``, or else the folder's name."""
        return str(self.version or hub.repository_of(self.path) or self.path.name)

    @property
    def is_default(self) -> bool:
        """Whether the agent's name without a number loads this version."""
        version = self.version
        return version is not None and Versions(version.name).default() == version

    @classmethod
    def load(cls, name: str | Path, *, constrain: Constrain = "auto") -> Self:
        """Load an agent.

        The weights are read only when they are needed.

        Args:
            name: ``coding@3``, ``coding`` for its default, a folder, or a Hugging Face
                id, ``owner/name``, which is downloaded.
            constrain: ``calls`` makes tool calls follow the tools' schemas, ``none``
                restricts nothing, ``auto`` does the same as training.

        Raises:
            NotFoundError: The agent is unknown; the message lists the known names.
            UsageError: The version is not a number, ``constrain`` is invalid, or
                Hugging Face cannot be reached or has no such agent.
            AgentGymError: The folder exists but cannot be read, or contains pickles.
        """
        if constrain not in get_args(Constrain):
            known = ", ".join(get_args(Constrain))
            raise UsageError(f"constrain = {constrain!r} is not one of {known}.")
        try:
            path = find(str(name)).path
        except UsageError:
            path = Path(name)
            if not os.path.isfile(path / AGENT_FILE):  # regardless of the text
                if os.path.exists(path) or not hub.is_id(str(name)):
                    raise
                path = hub.download(str(name), AGENT_FILE, MODEL_FOLDER)
        try:
            card = parse_json((path / AGENT_FILE).read_text(encoding="utf-8"))
            agent = cls(**{**card, "path": path, "constrain": constrain})
        except (OSError, ValueError, TypeError) as error:
            raise AgentGymError(
                f"The agent in {path} cannot be read ({error}). Train or save it again."
            ) from None
        if "checksums" not in card:
            raise CorruptModelError(
                f"agent.json in {path} has no checksums of its model's files, so that "
                "damage would not be noticed. Train or save the agent again."
            )
        refuse_links(path, {f"{MODEL_FOLDER}/{name}" for name in agent.checksums})
        refuse_pickles(path / MODEL_FOLDER)
        return agent

    def write_card(self) -> None:
        """Write ``agent.json``, with the model's checksums, into the agent's folder."""
        self.checksums = checksums(self.model_path)
        write_json(self.path / AGENT_FILE, self.model_dump(mode="json"))

    def save(self, name: str) -> Path:
        """Add the agent to ``AGENTGYM_HOME`` as the default version of ``name``.

        Existing versions stay. Missing checksums are added.

        Returns:
            The folder of the new version.

        Raises:
            UsageError: The name is invalid, or ``AGENTGYM_HOME`` cannot be written.
        """
        with Versions(name).locked() as versions:
            version = versions.add(self.path)
            if not self.checksums:
                self.model_copy(update={"path": version.path}).write_card()
            versions.set_default(version)
        return version.path

    def make_default(self) -> str | None:
        """Make this version the default of its name; later runs do not change that.

        Returns:
            The earlier default, such as ``coding@4``; None if it was deleted.

        Raises:
            UsageError: The agent is not a saved version.
        """
        version = self.version
        if version is None:
            raise UsageError(f"{self.path} is not saved under a name: save it first.")
        with Versions(version.name).locked() as versions:
            before = versions.default()
            versions.set_default(version, pinned=True)
        return None if before is None else str(before)

    def verified_model(self) -> Path:
        """Verify the model's files by their checksums, and return their folder.

        Raises:
            CorruptModelError: A file is missing, truncated or altered; the message has
                its name.
        """
        verify(self.model_path, self.checksums)
        return self.model_path

    def load_policy(self) -> Policy:
        """Load the weights into this process; closing the policy frees them.

        Raises:
            CorruptModelError: The weights differ from those saved.
        """
        from agentgym.engines.local.support import load_policy

        used = TemplateSettings(constrain=self.constrain)
        policy = load_policy(str(self.verified_model()), used)
        wording = self.wording
        return WordedPolicy(policy, wording) if wording else policy

    def transport(self) -> "PolicyTransport":
        """Load the weights; return an httpx transport that answers chat completions.

        Pass it to ``httpx.AsyncClient(transport=...)`` or ``httpx.Client``. This
        process then answers for any address. If a request does not set the temperature
        or the maximum length, the values of the agent's evaluation are used. Closing
        the transport frees the weights.

        Raises:
            CorruptModelError: The weights differ from those saved.
        """
        from agentgym.serving.in_process import PolicyTransport

        spec = self.spec
        return PolicyTransport(
            self.load_policy(),
            spec.served_name,
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
        )

    def export(self, folder: str | Path, form: str = "merged") -> Path:
        """Write the weights as a folder for transformers, peft and vLLM.

        Args:
            folder: The new folder; it must not exist yet.
            form: ``hf`` for the model as it was trained (maybe an adapter), ``merged``
                for full weights into which the adapter is merged.

        Returns:
            The folder, with a model card.

        Raises:
            UsageError: The form is unknown, or the folder exists or cannot be written.
            AgentGymError: The weights differ from those saved, or cannot be merged.
        """
        from agentgym.serving.card import model_card
        from agentgym.serving.export import export_model

        made = self.provenance
        card = model_card(
            self,
            form,
            **made.model_dump(include={"base_model", "steps", "episodes", "created"}),
            before=self.baseline,
            after=self.metrics,
        )
        return export_model(self, form, Path(folder), card)

    def chat_model(self) -> "BaseChatModel":
        """Return the policy as a LangChain chat model that runs in this process."""
        made: BaseChatModel = FRAMEWORKS.get("langchain").trained_model(self)
        return made

    def _to[T](
        self, framework: str, tools: list[Any] | None, **options: Unpack[_Options]
    ) -> T:  # type: ignore[type-var]  # the callers know it
        """Convert the agent to an object of a framework."""
        if self.roles and framework != "langchain":
            raise UnsupportedError(
                f"{self.name} has an adapter for each of {', '.join(self.roles)}, and "
                f"an agent of {framework} does not say which role is asking: use "
                "to_langchain(), or train it without role_adapters."
            )
        if unknown := options.keys() - _Options.__annotations__.keys():
            raise TypeError(f"to_{framework} takes no {', '.join(sorted(unknown))}.")
        made: T = FRAMEWORKS.get(framework).wrap_agent(self, tools=tools, **options)
        return made

    def to_langchain(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "CompiledStateGraph[Any, Any, Any, Any]":
        """Return the agent as a compiled LangGraph agent.

        Args:
            tools: LangChain tools or functions to use, for the other methods tools of
                their framework; None takes the scenario's tools, bound to a new example
                environment.
            **options: ``agent``, your own agent that gets the weights (it is not
                changed; else the one that was trained, if yours); ``base_url`` and
                ``api_key`` of a server that has them (else this process runs them).

        Raises:
            MissingExtraError: The framework is not installed.
        """
        return self._to("langchain", tools, **options)

    def to_autogen(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "ChatAgent | Team":
        """Return an AutoGen ``AssistantAgent``, or your own agent if that was trained.

        ``tools`` are tools of AutoGen; the rest is as for :meth:`to_langchain`.
        """
        return self._to("autogen", tools, **options)

    def to_crewai(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "Agent | Task | Crew":
        """Return a CrewAI Agent, or your own CrewAI object if that was trained.

        CrewAI then prints no panels and sends no traces in this process, unless
        ``CREWAI_TRACING_ENABLED`` is set.

        ``tools`` are tools of CrewAI; the rest is as for :meth:`to_langchain`.
        """
        return self._to("crewai", tools, **options)

    def to_adk(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> Any:
        """Return an agent of Google ADK; see :meth:`to_langchain`."""
        return self._to("adk", tools, **options)

    def to_agent_framework(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "FrameworkAgent[Any] | Workflow":
        """Return an Agent or Workflow of Agent Framework; see :meth:`to_langchain`."""
        return self._to("agent_framework", tools, **options)

    def to_llamaindex(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "FunctionAgent | AgentWorkflow":
        """Return a FunctionAgent or AgentWorkflow; see :meth:`to_langchain`."""
        return self._to("llamaindex", tools, **options)

    def to_openai_agents(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "OpenAIAgent[Any]":
        """Return an Agent of the OpenAI Agents SDK; see :meth:`to_langchain`."""
        return self._to("openai_agents", tools, **options)

    def to_pydantic_ai(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "PydanticAgent[Any, Any]":
        """Return an Agent of pydantic-ai; see :meth:`to_langchain`."""
        return self._to("pydantic_ai", tools, **options)

    def to_smolagents(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "ToolCallingAgent":
        """Return a ToolCallingAgent of smolagents; see :meth:`to_langchain`."""
        return self._to("smolagents", tools, **options)

    def to_strands(
        self, tools: list[Any] | None = None, **options: Unpack[_Options]
    ) -> "StrandsAgent":
        """Return an Agent of Strands; see :meth:`to_langchain`."""
        return self._to("strands", tools, **options)
