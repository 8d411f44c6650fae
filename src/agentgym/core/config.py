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
"""Names of modules and agents that do not describe an agent, e.g. ``build_agent``."""
_STAMP = r"-\d{8}-\d{6}$"
"""Time stamp of a run's folder, added if an earlier run has the agent's name."""
SMALL_ANSWER = 160
"""Default token limit of a small model's answer: nano needs about 40 for a call."""
SMALL_TIMEOUT_S = 60.0
AUTO_ENGINE = "auto"
"""The setting that lets a training run choose its engine by the machine."""
LONGEST_EPISODE = 8192
"""Default of ``max_episode_tokens`` where the memory suffices."""
MOST_IN_FLIGHT = 64
"""Default limit of episodes in flight per worker; a step has 64 rollouts by default."""
_MOST, _MANY = 10**9, 10**5
"""Upper bounds of numbers: a larger one is a typing error and would exhaust memory."""


def _read_roles(value: Any) -> Any:
    """Return names from a list or from a comma-separated text."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return names
    found = tuple(" ".join(n.split()) if isinstance(n, str) else n for n in names)
    if not found or not all(found):
        raise ValueError("name the roles to train, as in planner,support")
    return tuple(dict.fromkeys(found))


def _read_time(value: Any) -> Any:
    """Return seconds from a text such as ``1h30m``, or from a number."""
    if not isinstance(value, str):
        return value
    found = _TIME.fullmatch(value.strip().lower().replace(" ", ""))
    if found is None or not any(found.groups()):
        raise ValueError("write hours, minutes and seconds, as in 30m, 1h30m or 90s")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


Algorithm = Literal["rloo", "grpo", "dr_grpo", "dapo", "reinforce++", "ppo"]
"""How rewards become advantages; see :mod:`agentgym.engines.credit`."""


def _program_name(reference: str) -> str:
    """Return a name for an agent that is a command: the name of its first file."""
    words = reference.removeprefix(COMMAND).split()
    named = [word for word in words if PurePath(word).suffix] or words[:1]
    stem = PurePath(named[0]).stem if named else ""
    return re.sub(r"[^a-zA-Z0-9]+", "_", stem).strip("_").lower()


Precision = Literal["auto", "bf16", "float32"]
"""Number type of the weights that are not trained."""
Roles = Annotated[tuple[str, ...], BeforeValidator(_read_roles)]


class _Environment(EnvSettingsSource):
    """Read settings from environment variables; validation refuses unknown ones."""

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

    Values come from arguments, a YAML file (:meth:`from_yaml`) and the environment
    (``AGENTGYM_EPISODES=500``); the first of these wins. Unknown keys are refused, also
    unknown variables that start with ``AGENTGYM_``.

    Attributes:
        scenario: Name of the scenario, the path of a pack, or a tasks file with its
            tools: :class:`~agentgym.core.task.TaskSource`.
        framework: The agent's framework: ``langchain``, ``autogen``, ``crewai``,
            ``openai_agents``, ``pydantic_ai``, ``agent_framework``, ``native``, …
        agent: Your agent, to train instead of the scenario's own: ``module:name`` of it
            or of its factory, or ``command:`` and a program's command. The fields of
            :class:`~agentgym.core.agent.AgentSource` may also be given as settings of
            their own: ``context``, ``inputs``, ``configurable``, ``own_tools``,
            ``allow_tools``, ``program_memory_mb``.
        model: ``nano``, a folder, a Hugging Face id, ``smollm2`` or a GGUF file.
        engine: ``local`` (torch, in process), ``vllm`` (vLLM samples, torch learns),
            ``verl`` (many GPUs), ``lightning`` (Agent Lightning's trainer), or the
            engine of an installed package. ``auto`` trains with ``vllm`` if it is
            installed and this machine's GPU has room for it, else with ``local``.
        gpus_per_node: ``verl`` and ``lightning``: GPUs on each machine. ``vllm``: with
            1, vLLM and the learner share it; with more, the learner has one and vLLM
            the others.
        nodes: ``verl``: machines; more than one needs a Ray cluster (RAY_ADDRESS).
        tensor_parallel: All engines but ``local``: GPUs that share one copy of the
            sampling model.
        offload: ``verl`` and ``lightning``: move weights and optimizer to CPU memory
            while they are not used.
        memory_share: All engines but ``local``: share of each GPU's memory for
            sampling. None is 0.9 if nothing else uses that GPU, else the value nearest
            to 0.5 that leaves room for both.
        tool_format: The format in which the model writes tool calls; ``auto`` detects
            it by a probe of the chat template.
        chat_template: A template to use instead of the model's own: its text, a file,
            or ``hermes`` for the one that ships.
        thinking: Whether the chat template asks the model to reason before it answers;
            ``auto`` leaves that to the template.
        chat_template_kwargs: Further variables of the chat template, by name.
        constrain: ``calls`` restricts the tokens of tool calls to those that the tools'
            schemas allow; ``none`` restricts nothing; ``auto`` is ``calls`` for a model
            that was trained with it.
        engine_server: ``verl``: ``host:port`` of ``agentgym.engines.verl.server``; None
            starts a server on this machine. Its key is in AGENTGYM_ENGINE_KEY.
        verl: ``verl`` and ``lightning``: any of verl's settings,
            ``{"actor_rollout_ref.…": value}``.
        vllm: ``vllm``: any flag of ``vllm serve``, ``{"max_num_seqs": 64}``.
        gpu: Where to train. ``auto`` takes a local GPU if there is one, ``local``
            requires one, ``none`` forces the CPU; ``ssh:user@host`` or
            ``ssh:user@host:port`` trains on that machine; ``runpod``, ``lambda``,
            ``sky`` or another provider's name rents a machine, ``runpod:A100`` one with
            that GPU.
        spot: Rent machines that their provider may take away at any time, for less; the
            run then goes on on another one.
        max_hourly: Most $ per hour for a rented machine.
        max_cost: Most $ in total for the rented machines of a run; then it ends.
        episodes: Budget of training rollouts; 0 with ``warm_start`` ends after the warm
            start.
        time: Time limit of the whole run: seconds, or a text such as ``30m``. After
            the first rollouts were timed, it decides how many held-out tasks,
            validation tasks and steps there are. None: only ``episodes`` limits a run.
        seed: Seed of tasks, sampling and initialisation.
        deterministic: Make two runs with one seed give identical weights; slower.
        group_size: Rollouts per task; each is compared with the others.
        tasks_per_step: Tasks per policy update.
        task_choice: ``adaptive`` prefers families whose attempts differ in reward over
            families without a training signal at present; ``uniform`` takes all
            equally.
        algorithm: ``rloo`` (arXiv:2402.14740), ``grpo`` (arXiv:2402.03300),
            ``dr_grpo`` (arXiv:2503.20783), ``dapo`` (arXiv:2503.14476),
            ``reinforce++`` (arXiv:2501.03262) or, with ``verl`` alone, ``ppo`` with a
            value model (arXiv:1707.06347).
        prompts: A file of system prompts and tool descriptions that replace the agent's
            own in requests to the model, as ``agentgym improve`` writes it, or its
            text.
        train_roles: Names of the agents in a team that are trained; None: all. The
            others use the same weights, but their calls are not trained on.
        role_adapters: ``local``: train a LoRA adapter for each of ``train_roles``, over
            one copy of the model; the other agents are answered by the model as it was.
        train_tokens: The tokens of its responses that the model learns from: those of
            its tool ``calls``, ``calls+reasoning``, or ``all`` (for a reward that reads
            the text of the answer). None takes the scenario's value, by default
            ``calls``.
        judge: A model that compares attempts at the same task, and ranks those that
            the check accepts: ``openai:gpt-4.1-mini`` or an address. The attempts are
            sent to it. None: no judge.
        judge_rubric: The judge's instructions: a file, or a text; empty takes the
            built-in ones.
        judge_weight: Largest reward difference that the judge makes between two
            attempts.
        judge_price_in: $ per million tokens that the judge reads.
        judge_price_out: $ per million tokens that it writes.
        judge_max_cost: Most $ for judging; then training goes on without the judge.
        failure_cost: Penalty for a failed tool call, subtracted from the advantage of
            its model call, in units of reward (``grpo`` and ``dapo``: of the group's
            deviation, ``reinforce++``: of the batch's). Three times as much if the same
            call failed the same way before.
        learning_rate: AdamW's peak learning rate, which falls linearly to a tenth at
            the end of the budget; None takes the model's default.
        entropy_coefficient: Weight of the entropy bonus.
        kl_coefficient: Weight of the KL penalty against the untrained model (k3, per
            trained token); 0 does not compute it.
        ratio_limit: ``local`` and ``vllm``: updates skip, and count, sequences whose
            probability ratio of learner to sampler (geometric mean over tokens, before
            the update) is above this number or below its inverse. None skips none.
        warm_start: Fine-tune on the calls that training tasks need (``needed_calls``)
            before reinforcement learning; helps a model that hardly ever succeeds.
        warm_start_tasks: Most training tasks for the warm start; None: 4,500 for small
            models such as nano, 320 for others.
        temperature: Sampling temperature in training.
        eval_temperature: Sampling temperature in evaluations. A provider's model is
            sent this value only if it is not the default, and only for requests in
            which the agent sets no temperature.
        cache_requests: For evaluations of a model behind servers at
            ``eval_temperature`` 0: a file that keeps answers; equal requests are
            answered from it. Never in training.
        max_tokens: Most tokens of one response; None: 160 for small models such as
            nano, 1,024 for others, 4,096 for models that reason first.
        lora_rank: 0 trains all weights; None: 0 for nano, 16 for other models. An
            adapter in the model's folder keeps its own rank.
        precision: ``local`` and ``vllm``: number type of the frozen weights below an
            adapter; ``auto`` is bfloat16 if the GPU (``local``: or the processor)
            computes with it. Trained weights are float32.
        gradient_checkpointing: ``local`` and ``vllm``: recompute layers in the backward
            pass to save memory; None does so if memory is short.
        max_episode_tokens: Model calls whose prompt and response together are longer
            than this are not trained on; None: 8,192, or 4,096 or 2,048 if a GPU's
            memory needs it.
        eval_every: Updates between validation evaluations.
        eval_tasks: Validation tasks.
        test_tasks: Held-out tasks for the before/after table.
        eval_samples: Attempts per held-out task, for pass^1 and pass^k.
        forgetting_questions: Number of plain questions that measure how far training
            moves the model's answers on unrelated text; 0 measures nothing. Short runs
            ask fewer.
        early_stop: End the run when the success criteria hold on validation tasks. A
            second measurement, on the same number of other tasks, must confirm this
            and exceed the criteria by a margin for chance.
        patience: If ``early_stop`` is on, the run ends after this many validations in a
            row without improvement. A validation in which the right tool was called
            less often than before training counts twice.
        yes: Continue although the baseline shows that training will hardly work.
        workers: Worker processes.
        concurrency: Episodes in flight per worker; None: chosen by model and device, at
            most 64.
        rollout_timeout_s: Wall seconds after which a hanging episode is ended; None: 60
            for small models such as nano, at least 600 for others.
        max_attempts: Attempts per rollout before it is dropped.
        unsafe_local_exec: Run model-written code without a sandbox.
        tracker: ``tensorboard``, ``wandb`` or ``none``.
        name: Name of the saved agent and of the run. None derives it from the agent's
            module or attribute, or from the scenario.
        output: Folder of runs.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, allow_inf_nan=False
    )

    scenario: str = "coding"
    framework: str = "langchain"
    agent: Annotated[AgentSource, NoDecode] = AgentSource()
    model: str = "nano"
    engine: str = AUTO_ENGINE
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
    spot: bool = False
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
    role_adapters: bool = False
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
    max_episode_tokens: int | None = Field(default=None, gt=0, le=_MOST)
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
    def episode_tokens(self) -> int:
        """Most trained tokens of an episode: ``max_episode_tokens``, or the default."""
        return self.max_episode_tokens or LONGEST_EPISODE

    @property
    def in_flight(self) -> int:
        """Episodes in flight per worker: ``concurrency``, or the default for nano."""
        return self.concurrency or MOST_IN_FLIGHT

    @property
    def timeout_s(self) -> float:
        """Timeout of an episode: ``rollout_timeout_s``, or nano's default."""
        return self.rollout_timeout_s or SMALL_TIMEOUT_S

    @property
    def template(self) -> TemplateSettings:
        """The settings of the model's chat template."""
        return TemplateSettings(
            tool_format=self.tool_format,
            chat_template=self.chat_template,
            thinking=self.thinking,
            chat_template_kwargs=self.chat_template_kwargs,
            constrain=self.constrain,
        )

    @property
    def scenario_name(self) -> str:
        """The scenario's name to show: of the pack's folder or of the file."""
        if self.scenario.partition("?")[0].endswith(".jsonl"):
            return TaskSource.parse(self.scenario).name
        reference = self.scenario.partition("?")[0]
        return PurePath(reference).name.removesuffix(".py")

    @property
    def agent_name(self) -> str:
        """The name to save the trained agent under, unless it is taken."""
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
        """Return the sources of values; the first wins."""
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
        """Return ``values`` with the fields of ``agent`` at the top level."""
        return flattened(values)

    @classmethod
    def renamed(cls, values: dict[str, Any]) -> str:
        """Return a hint if a file has old keys that now belong below ``agent``."""
        old = [key for key in FLAT_KEYS if key in values]
        if not old:
            return ""
        return (
            f"{', '.join(old)} belong below agent: write agent: {{reference: "
            f"module:name, {old[0]}: …}}. The old form still works."
        )
