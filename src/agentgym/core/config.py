"""TrainingConfig: every setting of a run, from code, YAML or the environment."""

import os
import re
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from agentgym.core.agent import (
    COMMAND,
    FLAT_KEYS,
    AgentSource,
    flattened,
    is_command,
    nested,
)
from agentgym.core.components import TrainTokens
from agentgym.core.files import check_name
from agentgym.core.formats.settings import Constrain, TemplateSettings, Thinking
from agentgym.core.machines import check_gpu
from agentgym.core.settings import (
    LONGEST_S,
    OTHER_VARIABLES,
    PREFIX,
    Settings,
    variable_of,
)
from agentgym.core.task import TaskSource

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_SAYS_NOTHING = re.compile(
    r"(?:(?:make|build|create|get)_?)?(?:agents?|graphs?|teams?|crews?|workflow)?"
    r"|app|main|src|__main__"
)
"""Names of modules and agents that do not describe an agent."""
_STAMP = r"-\d{8}-\d{6}$"
"""The date of a run's folder, where an earlier run has the agent's name."""
SMALL_ANSWER = 160
"""Tokens of an answer of a small model: nano writes a call in about 40."""
SMALL_TIMEOUT_S = 60.0
MOST_IN_FLIGHT = 64
"""Episodes of a worker; a training step has 64 rollouts by default."""
_MOST, _MANY = 10**9, 10**5
"""More is a typing error, and would take more time or memory than there is."""


def _read_roles(value: Any) -> Any:
    """Return names from a list, or from one text with commas between them."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return names
    found = tuple(" ".join(n.split()) if isinstance(n, str) else n for n in names)
    if not found or not all(found):
        raise ValueError("name the roles to train, as in planner,support")
    return tuple(dict.fromkeys(found))


def _read_time(value: Any) -> Any:
    """Return the seconds that a text as ``1h30m`` stands for; numbers are seconds."""
    if not isinstance(value, str):
        return value
    found = _TIME.fullmatch(value.strip().lower().replace(" ", ""))
    if found is None or not any(found.groups()):
        raise ValueError("write hours, minutes and seconds, as in 30m, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


Algorithm = Literal["rloo", "grpo", "dr_grpo", "dapo", "reinforce++"]
"""How rewards become advantages; see :mod:`agentgym.engines.credit`."""


def _program_name(reference: str) -> str:
    """Return a name for the agent that a command starts: that of its first file."""
    words = reference.removeprefix(COMMAND).split()
    named = [word for word in words if PurePath(word).suffix] or words[:1]
    stem = PurePath(named[0]).stem if named else ""
    return re.sub(r"[^a-zA-Z0-9]+", "_", stem).strip("_").lower()


Precision = Literal["auto", "bf16", "float32"]
"""Of weights that are not trained."""
Roles = Annotated[tuple[str, ...], BeforeValidator(_read_roles)]


class _Environment(EnvSettingsSource):
    """Settings from variables; unknown ones are passed on, to be refused."""

    def __call__(self) -> dict[str, Any]:
        names = {*OTHER_VARIABLES, *self.settings_cls.model_fields, *FLAT_KEYS}
        known = set(map(variable_of, names))
        unknown = {
            name: value
            for name, value in os.environ.items()
            if name.upper().startswith(PREFIX) and name.upper() not in known
        }
        own = {key: self.env_vars.get(variable_of(key).lower()) for key in FLAT_KEYS}
        parts = {key: value for key, value in own.items() if value is not None}
        return {**nested({**super().__call__(), **parts}), **unknown}


def _path_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


class TrainingConfig(Settings, BaseSettings):
    """Settings of one training run.

    Values come, strongest first, from arguments, a YAML file (:meth:`from_yaml`)
    and the environment (``AGENTGYM_EPISODES=500``). Unknown keys are refused, also
    unknown variables that start with ``AGENTGYM_``.

    Attributes:
        scenario: Name of the scenario, the path of a pack, or a tasks file with its
            tools: :class:`~agentgym.core.task.TaskSource`.
        framework: Whose agent is trained: ``langchain``, ``autogen``, ``crewai``,
            ``openai_agents``, ``pydantic_ai``, ``agent_framework``, ``native``, …
        agent: Your agent, to train instead of the scenario's own: ``module:name`` of it
            or of its factory, or ``command:`` and a program's command; its input, and
            which of its own tools may run; see
            :class:`~agentgym.core.agent.AgentSource`. Its parts may be given by
            their own names too: ``context``, ``inputs``, ``configurable``,
            ``own_tools``, ``allow_tools``, ``program_memory_mb``.
        model: ``nano``, a folder, a Hugging Face id, ``smollm2`` or a GGUF file.
        engine: ``local`` (torch, in process), ``vllm`` (it samples, torch learns),
            ``verl`` (many GPUs), or one of an installed package.
        gpus_per_node: Of ``verl``: GPUs on each machine. Of ``vllm``: 1 is shared by
            vLLM and the learner; of more the learner has one, and vLLM the others.
        nodes: Of ``verl``: machines; more than one needs a Ray cluster (RAY_ADDRESS).
        tensor_parallel: Of ``vllm`` and ``verl``: GPUs that share one copy of the
            sampling model.
        offload: Of ``verl``: keep weights and optimizer in memory of the machine while
            they are not used.
        memory_share: Of ``vllm`` and ``verl``: of each GPU's memory, for sampling;
            None is 0.5, and 0.9 where nothing else uses that GPU.
        tool_format: The form in which the model writes tool calls; ``auto`` finds it
            by a probe of the chat template.
        chat_template: A template to use instead of the model's own: its text, a file,
            or ``hermes`` for the one that ships.
        thinking: Whether the chat template asks the model to reason before it answers;
            ``auto`` leaves that to the template.
        chat_template_kwargs: Further variables of the chat template, by name.
        constrain: ``calls`` restricts the tokens of tool calls to those that the tools'
            schemas allow, ``none`` restricts nothing; ``auto`` is ``calls`` for a
            model that was trained so.
        engine_server: Of ``verl``: ``host:port`` of ``agentgym.engines.verl.server``;
            None starts one here. Its key is in AGENTGYM_ENGINE_KEY.
        verl: Of ``verl``: any of its settings, ``{"actor_rollout_ref.…": value}``.
        vllm: Of ``vllm``: any flag of ``vllm serve``, ``{"max_num_seqs": 64}``.
        gpu: Where to train. ``auto`` takes a local GPU if there is one, ``local``
            insists on it, ``none`` forces the CPU; ``ssh:user@host`` or
            ``ssh:user@host:port`` trains on that machine; ``runpod``, ``lambda``,
            ``sky`` or another provider's name rents one, ``runpod:A100`` one of that
            kind.
        max_hourly: Of a rented machine: most $ an hour.
        max_cost: Of a rented machine: most $ in all, after which the run ends.
        episodes: Budget of training rollouts; 0 with ``warm_start`` imitates, and
            trains no further.
        time: Seconds, or a text as ``30m``, in which the whole run is to end: held-out
            and validation tasks are sized to it once rollouts were timed, and as many
            steps are done as fit. None: ``episodes`` alone end a run.
        seed: Of tasks, sampling and initialisation.
        deterministic: Same seed, same weights, bit for bit; slower.
        group_size: Rollouts per task, the baseline of each other.
        tasks_per_step: Tasks per policy update.
        task_choice: ``adaptive`` takes tasks of families whose attempts differ more
            often than those without a training signal at present; ``uniform`` takes
            all.
        algorithm: ``rloo`` (arXiv:2402.14740), ``grpo`` (arXiv:2402.03300),
            ``dr_grpo`` (arXiv:2503.20783), ``dapo`` (arXiv:2503.14476) or
            ``reinforce++`` (arXiv:2501.03262).
        prompts: A file of system prompts and tool descriptions that replace the agent's
            own on the way to the model, as ``agentgym improve`` writes it, or its text.
        train_roles: Who of a team of agents is trained, by name; None: all. The others
            are answered by the same weights, but nothing is learned from their calls.
        train_tokens: Which of its own tokens the model learns from: those of its tool
            ``calls``, ``calls+reasoning``, or ``all``, which a reward needs that reads
            the text of the answer. None takes the scenario's: ``calls``, unless its
            author chose otherwise.
        judge: A model that ranks attempts at one task which the check accepts, as
            ``openai:gpt-4.1-mini`` or an address; None: none does. It is sent the
            attempts.
        judge_rubric: By which the judge ranks: a file, or its text; empty takes the
            one that ships.
        judge_weight: Most reward that the judge puts between two attempts.
        judge_price_in: $ per million tokens that the judge reads.
        judge_price_out: $ per million tokens that it writes.
        judge_max_cost: Most $ of judging, after which training goes on without it.
        failure_cost: Penalty of a failed tool call on the advantage of its model call,
            in units of reward (``grpo`` and ``dapo``: of the group's deviation,
            ``reinforce++``: of the batch's); three times as much if it failed before in
            just the same way.
        learning_rate: AdamW's peak learning rate, which falls linearly to a tenth of
            it where the budget ends; None takes the model's default.
        entropy_coefficient: Weight of the entropy bonus.
        kl_coefficient: For ``local`` and ``vllm``: weight of the penalty on the
            distance from the untrained model (k3, per trained token); 0 measures none.
        ratio_limit: For ``local`` and ``vllm``: an update leaves out, and counts, each
            sequence whose tokens' probability at the learner, before the update, is in
            the geometric mean more than so many times that of sampling, or less than
            one part in so many. None leaves out none.
        warm_start: Imitate the calls that training tasks need (``needed_calls``) before
            training on own attempts; lifts a model that hardly ever succeeds.
        warm_start_tasks: Training tasks whose calls a warm start imitates, at most;
            None: 4,500 for small models, as nano, and 320 for others.
        temperature: Of sampling in training.
        eval_temperature: Of sampling in evaluations. A provider's model is sent another
            than the default where its agent asks for none.
        cache_requests: Of an evaluation of a model that servers answer for, at
            ``eval_temperature`` 0: a file in which answers are kept, and from which the
            same requests are answered. Never in training.
        max_tokens: Most tokens of one response; None: 160 for small models, as nano,
            1,024 for others, and 4,096 for those that reason first.
        lora_rank: 0 trains all weights; None: 0 for nano, 16 for other models. An
            adapter that the model's folder holds keeps its own.
        precision: For ``local`` and ``vllm``: the type of the weights below an adapter;
            ``auto`` is bfloat16 where the GPU, or for ``local`` the processor, computes
            with it. Weights that are trained are float32.
        gradient_checkpointing: For ``local`` and ``vllm``: whether updates compute each
            layer twice and keep less of it; None does so where memory needs it.
        max_episode_tokens: Model calls that end beyond so many tokens of their episode
            are not trained.
        eval_every: Updates between validation evaluations.
        eval_tasks: Validation tasks.
        test_tasks: Held-out tasks of the before/after table.
        eval_samples: Attempts per held-out task, for pass^1 and pass^k.
        forgetting_questions: Plain questions whose answers by the untrained model
            measure how far training moves the model on anything else; 0 measures
            nothing. Short runs ask fewer.
        early_stop: End once the success criteria hold on validation tasks, and are
            exceeded on as many others.
        patience: Validations in a row without a better one after which a run ends,
            if ``early_stop`` holds; one that calls the right tool less often than
            before training counts twice.
        yes: Go on where the baseline says that training will hardly work.
        workers: Worker processes.
        concurrency: Episodes in flight per worker; None: by the model and the device,
            at most 64.
        rollout_timeout_s: Wall seconds after which an episode is ended, because it
            hangs; None: 60 for small models, as nano, and at least 600 for others.
        max_attempts: Attempts per rollout before it is dropped.
        unsafe_local_exec: Run model-written code without a sandbox.
        tracker: ``tensorboard``, ``wandb`` or ``none``.
        name: Of the agent that is saved, and of the run. None names the agent after
            its module or attribute, or after the scenario.
        output: Folder of runs.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, allow_inf_nan=False
    )

    scenario: str = "coding"
    framework: str = "langchain"
    agent: Annotated[AgentSource, NoDecode] = AgentSource()
    model: str = "nano"
    engine: str = "local"
    gpus_per_node: int = Field(default=1, ge=1, le=1000)
    nodes: int = Field(default=1, ge=1, le=1000)
    tensor_parallel: int = Field(default=1, ge=1, le=1000)
    offload: bool = False
    memory_share: float | None = Field(default=None, gt=0, lt=1)
    tool_format: str = "auto"
    chat_template: str = ""
    thinking: Thinking = "auto"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    constrain: Constrain = "auto"
    engine_server: str | None = None
    verl: dict[str, Any] = Field(default_factory=dict)
    vllm: dict[str, Any] = Field(default_factory=dict)
    gpu: Annotated[str, AfterValidator(check_gpu)] = "auto"
    max_hourly: float | None = Field(default=None, gt=0, le=_MANY)
    max_cost: float | None = Field(default=None, gt=0, le=_MANY)
    episodes: int = Field(default=10_000, ge=0, le=_MOST)
    time: Annotated[float | None, BeforeValidator(_read_time)] = Field(
        default=None, gt=0, le=LONGEST_S
    )
    seed: int = Field(default=0, ge=0, lt=2**63)
    deterministic: bool = False
    group_size: int = Field(default=8, ge=2, le=_MANY)
    tasks_per_step: int = Field(default=8, ge=1, le=_MANY)
    task_choice: Literal["adaptive", "uniform"] = "adaptive"
    algorithm: Algorithm = "rloo"
    prompts: Annotated[str, BeforeValidator(_path_as_text)] = ""
    train_roles: Annotated[Roles | None, NoDecode] = None
    train_tokens: TrainTokens | None = None
    judge: str | None = None
    judge_rubric: Annotated[str, BeforeValidator(_path_as_text)] = ""
    judge_weight: float = Field(default=0.5, gt=0, le=_MANY)
    judge_price_in: float | None = Field(default=None, ge=0, le=_MANY)
    judge_price_out: float | None = Field(default=None, ge=0, le=_MANY)
    judge_max_cost: float | None = Field(default=None, gt=0, le=_MANY)
    failure_cost: float = Field(default=0.2, ge=0)
    learning_rate: float | None = Field(default=None, gt=0)
    entropy_coefficient: float = Field(default=0.0, ge=0)
    kl_coefficient: float = Field(default=0.0, ge=0)
    ratio_limit: float | None = Field(default=2.0, gt=1)
    warm_start: bool = False
    warm_start_tasks: int | None = Field(default=None, ge=8, le=_MANY)
    temperature: float = Field(default=1.0, gt=0)
    eval_temperature: float = Field(default=0.5, ge=0)
    cache_requests: Path | None = None
    max_tokens: int | None = Field(default=None, gt=0, le=_MOST)
    lora_rank: int | None = Field(default=None, ge=0, le=_MANY)
    precision: Precision = "auto"
    gradient_checkpointing: bool | None = None
    max_episode_tokens: int = Field(default=8192, gt=0, le=_MOST)
    eval_every: int = Field(default=5, gt=0, le=_MOST)
    eval_tasks: int = Field(default=96, gt=0, le=_MANY)
    test_tasks: int = Field(default=96, gt=0, le=_MANY)
    eval_samples: int = Field(default=4, ge=1, le=_MANY)
    forgetting_questions: int = Field(default=50, ge=0, le=50)
    early_stop: bool = True
    patience: int = Field(default=10, ge=1, le=_MOST)
    yes: bool = False
    workers: int | None = Field(default=None, gt=0, le=1000)
    concurrency: int | None = Field(default=None, gt=0, le=_MANY)
    rollout_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    max_attempts: int = Field(default=3, ge=1, le=_MANY)
    unsafe_local_exec: bool = False
    tracker: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    name: Annotated[str, AfterValidator(check_name)] | None = None
    output: Path = Path("runs")

    @property
    def answer_tokens(self) -> int:
        """Most tokens of one response: ``max_tokens``, or the default for nano."""
        return self.max_tokens or SMALL_ANSWER

    @property
    def in_flight(self) -> int:
        """Episodes in flight per worker: ``concurrency``, or the default for nano."""
        return self.concurrency or MOST_IN_FLIGHT

    @property
    def timeout_s(self) -> float:
        """Most seconds of an episode: ``rollout_timeout_s``, or the one for nano."""
        return self.rollout_timeout_s or SMALL_TIMEOUT_S

    @property
    def template(self) -> TemplateSettings:
        """How the model's chat template is used."""
        return TemplateSettings(
            tool_format=self.tool_format,
            chat_template=self.chat_template,
            thinking=self.thinking,
            chat_template_kwargs=self.chat_template_kwargs,
            constrain=self.constrain,
        )

    @property
    def scenario_name(self) -> str:
        """The scenario's name, for people: that of a pack's folder or a file."""
        if self.scenario.partition("?")[0].endswith(".jsonl"):
            return TaskSource.parse(self.scenario).name
        reference = self.scenario.partition("?")[0]
        return PurePath(reference).name.removesuffix(".py")

    @property
    def agent_name(self) -> str:
        """The name of the trained agent, unless another agent has that name."""
        if self.name is not None:
            return re.sub(_STAMP, "", self.name)
        if self.agent.reference is None:
            return self.scenario_name
        if is_command(self.agent.reference):
            name = _program_name(self.agent.reference)
            is_telling = name and not _SAYS_NOTHING.fullmatch(name)
            return name if is_telling else self.scenario_name
        module, _, attribute = self.agent.reference.partition(":")
        parts = [attribute, *reversed(module.split("."))]
        telling = (part for part in parts if not _SAYS_NOTHING.fullmatch(part))
        return next(telling, parts[1]).strip("_") or self.scenario_name

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where values come from, strongest first."""
        given = init_settings()
        return InitSettingsSource(settings_cls, nested(given)), _Environment(
            settings_cls
        )

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, with those of an agent's parts."""
        return sorted({*cls.model_fields, *FLAT_KEYS})

    @classmethod
    def flat(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` with each part of the agent's source by its own name."""
        return flattened(values)

    @classmethod
    def renamed(cls, values: dict[str, Any]) -> str:
        """Return a sentence on keys of a file that stand below ``agent`` now."""
        old = [key for key in FLAT_KEYS if key in values]
        if not old:
            return ""
        return (
            f"{', '.join(old)} belong below agent: write agent: {{reference: "
            f"module:name, {old[0]}: …}}. The old form still works."
        )
