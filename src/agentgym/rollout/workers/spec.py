"""WorkerSpec: the configuration of a process that runs agents."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict

from agentgym.core.agent import AgentSource
from agentgym.core.config import TrainingConfig


class WorkerSpec(BaseModel):
    """The configuration of a worker process.

    Attributes:
        worker: Name of the worker in the store.
        gateway: Base URL of the gateway; ``api_key`` is its key.
        model: Name of the policy's model.
        concurrency: Number of episodes that run at the same time.
        timeout_s: Wall-clock seconds after which an episode is ended.
        agent: The user's agent, and the settings for its input and its own tools.
        hosts: If given, the worker cannot reach other machines; this file lists the
            machines that it tried to reach.
        audit: File of the audit log; None writes no log.
        memory_mb: Limit of the worker's address space in MiB; larger allocations fail.
    """

    model_config = ConfigDict(extra="forbid")

    worker: str
    gateway: str
    api_key: str
    model: str
    scenario: str
    framework: str
    agent: AgentSource = AgentSource()
    hosts: str | None = None
    audit: str | None = None
    concurrency: int = 64
    timeout_s: float = 60.0
    memory_mb: int = 8192
    unsafe_local_exec: bool = False

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        *,
        gateway: str,
        api_key: str,
        model: str,
        hosts: str | None = None,
        audit: Path | None = None,
    ) -> Self:
        """Return the workers' configuration, with values from a run's ``config``."""
        return cls(
            worker="worker",
            gateway=gateway,
            api_key=api_key,
            model=model,
            scenario=config.scenario,
            framework=config.framework,
            agent=config.agent,
            hosts=hosts,
            audit=None if audit is None else str(audit.absolute()),
            concurrency=config.in_flight,
            timeout_s=config.timeout_s,
            unsafe_local_exec=config.unsafe_local_exec,
        )
