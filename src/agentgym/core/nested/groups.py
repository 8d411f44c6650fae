"""Groups of settings: of the judge, of rented machines, and of verl.

The group ``agent`` is :class:`~agentgym.core.agent.AgentSource`.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.settings import MANY, PathText


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JudgeSettings(_Group):
    """The settings of a judge: a model that ranks the successful attempts at a task.

    ``judge: openai:gpt-4.1-mini`` is short for ``judge: {model: openai:gpt-4.1-mini}``.

    Attributes:
        model: The judge's model: a name such as ``openai:gpt-4.1-mini``, or an address.
            The attempts are sent to this model. None means no judge.
        rubric: The judge's instructions: a file, or a text. If empty, the built-in
            instructions are used.
        weight: Maximum reward difference that the judge's ranking makes between two
            attempts.
        price_in: US dollars per million tokens that the judge reads.
        price_out: US dollars per million tokens that the judge writes.
        max_cost: Maximum US dollars for judging. When they are spent, training
            continues without the judge.
    """

    model: str | None = None
    rubric: PathText = ""
    weight: float = Field(default=0.5, gt=0, le=MANY)
    price_in: float | None = Field(default=None, ge=0, le=MANY)
    price_out: float | None = Field(default=None, ge=0, le=MANY)
    max_cost: float | None = Field(default=None, gt=0, le=MANY)


class RentSettings(_Group):
    """The settings of rented machines.

    Attributes:
        spot: Rent cheaper machines that the provider may take away at any time; the run
            then continues on another machine.
        max_hourly: Maximum price of a rented machine in US dollars per hour.
        max_cost: Maximum US dollars for all rented machines of a run; the run ends when
            they are spent.
    """

    spot: bool = False
    max_hourly: float | None = Field(default=None, gt=0, le=MANY)
    max_cost: float | None = Field(default=None, gt=0, le=MANY)


class VerlSettings(_Group):
    """The settings of the engine ``verl``. ``lightning`` reads some of them.

    ``verl: {"trainer.device": cpu}`` is short for
    ``verl: {settings: {"trainer.device": cpu}}``.

    Attributes:
        nodes: ``verl``: number of machines; more than one needs a Ray cluster
            (RAY_ADDRESS).
        offload: ``verl`` and ``lightning``: move weights and optimizer to CPU memory
            while they are not used.
        server: ``verl``: ``host:port`` of a running server
            ``agentgym.plugins.verl.server``. None starts a server on this machine. The
            server's key is in the variable AGENTGYM_ENGINE_KEY.
        settings: ``verl`` and ``lightning``: further settings of verl, e.g.
            ``{"actor_rollout_ref.…": value}``.
    """

    nodes: int = Field(default=1, ge=1, le=1000)
    offload: bool = False
    server: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
