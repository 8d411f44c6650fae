"""TrainedAgent: weights, agent spec, provenance and metrics, in one folder."""

import json
import shutil
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, Field

from agentgym.core.agent import AgentSpec
from agentgym.core.config import TrainingConfig
from agentgym.core.files import agents_home, new_folder, write_json
from agentgym.core.policy import Policy
from agentgym.engines.base import Engine
from agentgym.errors import AgentGymError, NotFoundError, UsageError
from agentgym.evaluate.metrics import Metrics
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.scenarios.base import Scenario
from agentgym.train.run_folder import RunState

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph

AGENT_FILE = "agent.json"
_PACKAGES = ("agentgym", "agentlightning", "torch", "transformers", "langchain")
MODEL_FOLDER = "model"


class Provenance(BaseModel, extra="forbid"):
    """Where an agent comes from.

    Attributes:
        base_model: What training started from.
        config: Every setting of the run.
        steps: Policy updates.
        episodes: Training rollouts.
        created: ISO 8601.
        versions: Of the packages that mattered.
    """

    base_model: str
    config: dict[str, Any]
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
    """

    path: Path = Field(exclude=True)
    spec: AgentSpec
    provenance: Provenance
    baseline: Metrics
    metrics: Metrics

    @property
    def model_path(self) -> Path:
        """The weights and tokenizer, as transformers and vLLM load them."""
        return self.path / MODEL_FOLDER

    @property
    def scenario(self) -> str:
        """What to load the scenario by: its name, or the path of its pack."""
        return str(self.provenance.config.get("scenario", self.spec.scenario))

    @classmethod
    def load(cls, name: str | Path) -> Self:
        """Load an agent by the name it was saved under, or by its folder.

        Raises:
            NotFoundError: Names the nearest and those available.
            AgentGymError: The folder is there but cannot be read.
        """
        for path in (agents_home() / name, Path(name)):
            if (path / AGENT_FILE).is_file():
                break
        else:
            hint = "Train one with `agentgym train SCENARIO`."
            raise NotFoundError("trained agent", str(name), agent_names(), hint)
        try:
            card = json.loads((path / AGENT_FILE).read_text(encoding="utf-8"))
            return cls(**{**card, "path": path})
        except (OSError, ValueError, TypeError) as error:
            raise AgentGymError(
                f"The agent in {path} cannot be read ({error}). Train or save it again."
            ) from None

    def write_card(self) -> None:
        """Write ``agent.json`` into the agent's folder."""
        write_json(self.path / AGENT_FILE, self.model_dump(mode="json"))

    def save(self, name: str) -> Path:
        """Copy the agent to ``AGENTGYM_HOME`` under ``name``; the old one goes.

        Raises:
            UsageError: The name is not one path component.
        """
        if not name or Path(name).name != name or name.startswith("."):
            raise UsageError(f"{name!r} is no name for an agent; use letters and _.")
        target = agents_home() / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as folder:
            shutil.copytree(self.path, folder, dirs_exist_ok=True)
        return target

    def load_policy(self) -> Policy:
        """Load the weights into this process; they are let go with the policy."""
        from agentgym.engines.local.policy import LocalPolicy

        return LocalPolicy.load(self.model_path)

    def chat_model(self) -> "BaseChatModel":
        """Return the policy as a LangChain chat model, in this process."""
        from agentgym.integrations.langchain.model import PolicyChatModel

        return PolicyChatModel.of(self)

    def to_langchain(
        self,
        tools: list[Any] | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
    ) -> "CompiledStateGraph[Any, Any, Any, Any]":
        """Return the agent as a compiled LangGraph agent.

        Args:
            tools: LangChain tools or functions to use; None takes the scenario's,
                on a fresh example environment.
            base_url: Of an OpenAI-compatible server that serves the weights; None
                runs the policy in this process.
            api_key: For ``base_url``.

        Raises:
            MissingExtraError: LangChain is not installed.
        """
        adapter = FRAMEWORKS.get("langchain")
        graph: CompiledStateGraph[Any, Any, Any, Any] = adapter.wrap_agent(
            self, tools=tools, base_url=base_url, api_key=api_key
        )
        return graph


def agent_names() -> list[str]:
    """Return the names of all saved agents."""
    return sorted(path.parent.name for path in agents_home().glob(f"*/{AGENT_FILE}"))


def export_agent(
    engine: Engine,
    scenario: Scenario,
    config: TrainingConfig,
    *,
    folder: Path,
    step: int,
    state: RunState,
    baseline: Metrics,
    metrics: Metrics,
) -> tuple[Path, str]:
    """Write the agent into ``folder`` and save it under the scenario's name.

    Returns:
        The folder, and the name that ``TrainedAgent.load`` takes.
    """
    spec = AgentSpec(
        scenario=scenario.name,
        framework=config.framework,
        agent=config.agent,
        system_prompt=scenario.system_prompt(),
        tools=[tool.to_openai() for tool in scenario.tools()],
        max_turns=scenario.max_turns,
        max_tokens=config.max_tokens,
        temperature=config.eval_temperature,
    )
    provenance = Provenance(
        base_model=config.model,
        config=config.model_dump(mode="json"),
        steps=step,
        episodes=state.episodes,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        versions=_versions(),
    )
    with new_folder(folder) as temporary:
        engine.export(temporary / MODEL_FOLDER)
        TrainedAgent(
            path=temporary,
            spec=spec,
            provenance=provenance,
            baseline=baseline,
            metrics=metrics,
        ).write_card()
    TrainedAgent.load(folder.resolve()).save(scenario.name)
    return folder, scenario.name


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
