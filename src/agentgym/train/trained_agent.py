"""TrainedAgent: weights, agent spec, provenance and metrics, in one folder."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from pydantic import BaseModel, Field

from agentgym.core.agent import AgentSpec
from agentgym.core.files import parse_json, write_json
from agentgym.core.formats.settings import Constrain, TemplateSettings
from agentgym.core.policy import Policy
from agentgym.core.task import TaskSource
from agentgym.errors import AgentGymError, UsageError
from agentgym.evaluate.metrics import Metrics
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models import hub
from agentgym.models.checksums import checksums, refuse_links, refuse_pickles, verify
from agentgym.rollout.wording import WordedPolicy, Wording
from agentgym.scenarios.packs import is_tasks_file
from agentgym.train.versions import AGENT_FILE, Version, Versions, find

if TYPE_CHECKING:
    import httpx
    from agent_framework import Agent as FrameworkAgent
    from agent_framework import Workflow
    from agents import Agent as OpenAIAgent
    from autogen_agentchat.base import ChatAgent, Team
    from crewai import Agent, Crew
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph
    from pydantic_ai import Agent as PydanticAgent

MODEL_FOLDER = "model"


class Provenance(BaseModel, extra="forbid"):
    """Where an agent comes from.

    Attributes:
        base_model: The model that training started from.
        config: Every setting of the run.
        run: The run's folder, where it was; empty if there was none.
        folder: The working folder of training; empty if that is not known.
        steps: Policy updates.
        episodes: Training rollouts.
        created: ISO 8601.
        versions: Of the packages that mattered.
    """

    base_model: str
    config: dict[str, Any]
    run: str = ""
    folder: str = ""
    steps: int
    episodes: int
    created: str
    versions: dict[str, str] = Field(default_factory=dict)


class TrainedAgent(BaseModel):
    """A trained agent, loadable into any supported framework.

    Attributes:
        path: Its folder: ``agent.json`` and ``model/`` in Hugging Face format.
        spec: Prompt, tools and limits.
        provenance: How it was made.
        baseline: Held-out metrics before training.
        metrics: Held-out metrics after training.
        checksums: SHA-256 of each file in ``model/``, checked before weights are used;
            empty if it was saved without.
        constrain: Whether calls are restricted to the tools' schemas where the weights
            answer in this process; ``auto`` is as in training.
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
        """The working folder of training; empty if that is not known."""
        return self.provenance.folder

    @property
    def model_path(self) -> Path:
        """The weights and tokenizer, as transformers and vLLM load them."""
        return self.path / MODEL_FOLDER

    @property
    def scenario(self) -> str:
        """What to load the scenario by: its name, or the path of its pack."""
        return str(self.provenance.config.get("scenario", self.spec.scenario))

    @property
    def wording(self) -> Wording:
        """The prompts and tool descriptions that it was trained with.

        They replace those of its own wherever the weights answer from this process.
        """
        return Wording.parse(str(self.provenance.config.get("prompts") or ""))

    def same_tasks(self, scenario: str) -> str | None:
        """Return the tasks file that the agent was trained on, if it is meant.

        Args:
            scenario: Its name, or the file without its tools.

        Returns:
            What to load it by, its tools included, none of them live: that must be
            allowed again. None if something else is meant.
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
        """The saved version; None in any other folder."""
        return Version.at(self.path)

    @property
    def name(self) -> str:
        """``coding@3``, or ``owner/name``; else the folder's name."""
        return str(self.version or hub.repository_of(self.path) or self.path.name)

    @property
    def is_default(self) -> bool:
        """Whether its name alone means this version."""
        version = self.version
        return version is not None and Versions(version.name).default() == version

    @classmethod
    def load(cls, name: str | Path, *, constrain: Constrain = "auto") -> Self:
        """Load an agent.

        Its weights are read only once they are needed.

        Args:
            name: ``coding@3``, ``coding`` for its default, a folder, or a Hugging Face
                id, ``owner/name``, which is downloaded.
            constrain: ``calls`` restricts its tool calls to the tools' schemas,
                ``none`` restricts nothing; ``auto`` is as in training.

        Raises:
            NotFoundError: Names the nearest and those available.
            UsageError: The text after the ``@`` is not a number, ``constrain`` is
                another word, or Hugging Face cannot be asked, or has no such agent.
            AgentGymError: The folder exists but cannot be read, or holds pickles.
        """
        if constrain not in get_args(Constrain):
            known = ", ".join(get_args(Constrain))
            raise UsageError(f"constrain = {constrain!r} is not one of {known}.")
        try:
            path = find(str(name)).path
        except UsageError:
            path = Path(name)
            if not os.path.isfile(path / AGENT_FILE):  # whatever the text is
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
        refuse_links(path, {f"{MODEL_FOLDER}/{name}" for name in agent.checksums})
        refuse_pickles(path / MODEL_FOLDER)
        return agent

    def write_card(self) -> None:
        """Write ``agent.json``, with the model's checksums, into the agent's folder."""
        self.checksums = checksums(self.model_path)
        write_json(self.path / AGENT_FILE, self.model_dump(mode="json"))

    def save(self, name: str) -> Path:
        """Add the agent to ``AGENTGYM_HOME`` as the default version of ``name``.

        Existing versions stay. One without checksums gets them.

        Returns:
            The folder of the new version.

        Raises:
            UsageError: The name is none, or ``AGENTGYM_HOME`` cannot be written.
        """
        with Versions(name).locked() as versions:
            version = versions.add(self.path)
            if not self.checksums:
                self.model_copy(update={"path": version.path}).write_card()
            versions.set_default(version)
        return version.path

    def make_default(self) -> str | None:
        """Make this version its name's default; later runs do not change it.

        Returns:
            The earlier default, ``coding@4``; None if that is gone.

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

    @property
    def unchecked(self) -> str | None:
        """Why its weights cannot be checked for damage; None if they can."""
        if self.checksums:
            return None
        return (
            f"{self.name} was saved without checksums, as older versions of AgentGym "
            "did: damage to its weights would not be noticed. It gets them when it is "
            "saved again, in Python: TrainedAgent.load(...).save(NAME)."
        )

    def verified_model(self) -> Path:
        """Return the model's folder, once its files are found to be those saved.

        One that was saved without checksums is taken as it is; see :attr:`unchecked`.

        Raises:
            CorruptModelError: One is missing, cut short or altered; names it.
        """
        verify(self.model_path, self.checksums)
        return self.model_path

    def load_policy(self) -> Policy:
        """Load the weights into this process; they are let go with the policy.

        Raises:
            CorruptModelError: They are not as they were saved.
        """
        from agentgym.engines.local.support import load_policy

        used = TemplateSettings(constrain=self.constrain)
        policy = load_policy(str(self.verified_model()), used)
        wording = self.wording
        return WordedPolicy(policy, wording) if wording else policy

    def transport(self) -> "httpx.AsyncBaseTransport":
        """Load the weights behind a client of OpenAI's; they go with the client.

        Give it to ``httpx.AsyncClient(transport=...)``: chat completions of any address
        are then answered in this process, sampled as the agent was measured where a
        request does not say.

        Raises:
            CorruptModelError: The weights are not as they were saved.
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
            form: ``hf``, the model as it was trained (an adapter if it is one), or
                ``merged``, with an adapter merged into full weights.

        Returns:
            The folder, which has a model card too.

        Raises:
            UsageError: The form is unknown, or the folder exists or cannot be written.
            AgentGymError: The weights are not as they were saved, or cannot be merged.
        """
        from agentgym.models.chat_template import form_of
        from agentgym.models.folder import held_rank
        from agentgym.serving.card import model_card
        from agentgym.serving.export import export_model

        made = self.provenance
        form_found = form_of(str(self.model_path), TemplateSettings())
        card = model_card(
            self.spec,
            self.name,
            rank=held_rank(self.model_path) if form == "hf" else 0,
            form=form_found.name,
            variables=form_found.variables,
            constrains=form_found.constrains,
            base_model=made.base_model,
            steps=made.steps,
            episodes=made.episodes,
            created=made.created,
            before=self.baseline,
            after=self.metrics,
        )
        return export_model(self, form, Path(folder), card)

    def chat_model(self) -> "BaseChatModel":
        """Return the policy as a LangChain chat model, in this process."""
        from agentgym.integrations.langchain.model import PolicyChatModel

        return PolicyChatModel.of(self)

    def _to(
        self,
        framework: str,
        tools: list[Any] | None,
        agent: Any,
        base_url: str | None,
        api_key: str | None,
    ) -> Any:
        """Return the agent as a native object of a framework."""
        return FRAMEWORKS.get(framework).wrap_agent(
            self, tools=tools, agent=agent, base_url=base_url, api_key=api_key
        )

    def to_langchain(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "CompiledStateGraph[Any, Any, Any, Any]":
        """Return the agent as a compiled LangGraph agent.

        Args:
            tools: LangChain tools or functions to use; None takes the scenario's,
                on a fresh example environment.
            agent: Your own agent to put the weights into, if it is not to be
                imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: LangChain is not installed.
        """
        made: CompiledStateGraph[Any, Any, Any, Any] = self._to(
            "langchain", tools, agent, base_url, api_key
        )
        return made

    def to_autogen(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "ChatAgent | Team":
        """Return the agent as an AutoGen ``AssistantAgent``, or as its factory does.

        Args:
            tools: AutoGen tools or functions to use; None takes the scenario's, on a
                fresh example environment.
            agent: Your own agent to put the weights into, if it is not to be
                imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: AutoGen is not installed.
        """
        made: ChatAgent | Team = self._to("autogen", tools, agent, base_url, api_key)
        return made

    def to_crewai(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "Agent | Crew":
        """Return the agent as a CrewAI Agent, or the Crew that its factory builds.

        CrewAI then prints no panels and sends no traces in this process, unless
        ``CREWAI_TRACING_ENABLED`` says so.

        Args:
            tools: CrewAI tools to use; None takes the scenario's, on a fresh example
                environment.
            agent: Your own agent to put the weights into, if it is not to be
                imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: CrewAI is not installed.
        """
        made: Agent | Crew = self._to("crewai", tools, agent, base_url, api_key)
        return made

    def to_agent_framework(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "FrameworkAgent[Any] | Workflow":
        """Return the agent as an ``Agent`` of Microsoft Agent Framework, or a Workflow.

        Args:
            tools: Tools of Agent Framework's to use; None takes the scenario's, on a
                fresh example environment.
            agent: Your own agent or workflow to put the weights into, if it is not to
                be imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: Agent Framework is not installed.
        """
        made: FrameworkAgent[Any] | Workflow = self._to(
            "agent_framework", tools, agent, base_url, api_key
        )
        return made

    def to_openai_agents(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "OpenAIAgent[Any]":
        """Return the agent as an ``Agent`` of the OpenAI Agents SDK.

        Args:
            tools: Function tools of the SDK's to use; None takes the scenario's, on a
                fresh example environment.
            agent: Your own agent to put the weights into, if it is not to be
                imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: The SDK is not installed.
        """
        made: OpenAIAgent[Any] = self._to(
            "openai_agents", tools, agent, base_url, api_key
        )
        return made

    def to_pydantic_ai(
        self,
        tools: list[Any] | None = None,
        *,
        agent: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "PydanticAgent[Any, Any]":
        """Return the agent as an ``Agent`` of pydantic-ai.

        Args:
            tools: Tools of pydantic-ai's to use; None takes the scenario's, on a fresh
                example environment.
            agent: Your own agent to put the weights into, if it is not to be
                imported as it was in training; itself it stays as it is.
            base_url: Of an OpenAI-compatible server that serves the weights, which is
                asked for its models' names; None runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: pydantic-ai is not installed.
        """
        made: PydanticAgent[Any, Any] = self._to(
            "pydantic_ai", tools, agent, base_url, api_key
        )
        return made
