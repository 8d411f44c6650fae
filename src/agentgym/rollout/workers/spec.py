"""WorkerSpec: the configuration of a worker process."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig


class WorkerSpec(BaseModel):
    """The configuration of a worker, which is a process that runs agents."""

    model_config = ConfigDict(extra="forbid")

    worker: str  # its name in the store
    gateway: str  # base URL
    api_key: str  # of the gateway
    model: str  # name of the policy's model
    scenario: str
    groups: dict[str, dict[str, Any]] = {}  # settings of plug-ins, by name
    framework: str
    agent: AgentSource = AgentSource()
    witness: Path | None = None
    """The file of a trial's notes; then other machines cannot be reached."""
    audit: Path | None = None  # file of the audit log
    private: bool = False  # whether the audit log has no texts
    concurrency: int = 64  # episodes that run at the same time
    timeout_s: float = 60.0  # wall-clock seconds after which an episode is ended
    memory_mb: int = 8192  # limit of the address space; larger allocations fail
    unsafe_local_exec: bool = False

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        *,
        gateway: str,
        api_key: str,
        model: str,
        witness: Path | None = None,
        audit: Path | None = None,
    ) -> Self:
        """Return the workers' configuration, with values from a run's ``config``."""
        return cls(
            worker="worker",
            gateway=gateway,
            api_key=api_key,
            model=model,
            scenario=config.scenario,
            groups=config.plugin_groups,
            framework=config.framework,
            agent=config.agent,
            witness=witness,
            audit=None if audit is None else audit.absolute(),
            private=config.private,
            concurrency=config.in_flight,
            timeout_s=config.timeout_s,
            unsafe_local_exec=config.unsafe_local_exec,
        )
