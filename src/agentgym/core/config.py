"""TrainingConfig: every setting of a run, from code, YAML or the environment."""

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from agentgym.core.agent import AgentSource, is_command, program_name
from agentgym.core.components import TrainTokens
from agentgym.core.files import check_name
from agentgym.core.formats.settings import Constrain, TemplateSettings, Thinking
from agentgym.core.machines import check_gpu
from agentgym.core.nested.groups import JudgeSettings, RentSettings, VerlSettings
from agentgym.core.nested.keys import FLAT_KEYS, flattened, nested
from agentgym.core.prices import USUAL_PRICES, Prices, read_prices
from agentgym.core.settings import (
    LONGEST_S,
    MANY,
    OTHER_VARIABLES,
    PREFIX,
    PathText,
    Settings,
    variable_of,
)
from agentgym.core.task import TaskSource

_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_SAYS_NOTHING = re.compile(
    r"(?:(?:make|build|create|get)_?)?(?:agents?|graphs?|teams?|crews?|workflow)?"
    r"|app|main|src|__main__"
)
"""Names such as ``build_agent``, which are too general as the name of an agent."""
_STAMP = r"-\d{8}-\d{6}$"
"""The time stamp at the end of a run's name, if an earlier run had the same name."""
_MAPPINGS = ("chat_template_kwargs", "rent", "verl", "vllm")
"""Settings that an environment variable gives as JSON."""
SMALL_ANSWER = 160
"""Default of ``max_tokens`` for small models; nano needs about 40 tokens for a call."""
SMALL_TIMEOUT_S = 60.0
AUTO_ENGINE = "auto"
"""Value of ``engine`` that chooses ``vllm`` or ``local``, depending on the GPU."""
LONGEST_EPISODE = 8192
"""Default of ``max_episode_tokens`` if the memory is large enough."""
MOST_IN_FLIGHT = 64
"""Default of ``concurrency``, equal to the default number of rollouts in a step."""
_MOST = 10**9
"""Upper limit of numeric settings that may be larger than ``MANY``."""


def _read_roles(value: Any) -> Any:
    """Return a tuple of role names from a list or from a comma-separated text."""
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


def _read_goal(value: Any) -> Any:
    """Return minimums of metrics from a text such as ``pass_1=0.9,pass_k=0.8``."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    return {name.strip(): least.strip() for name, _, least in pairs}


Minimums = dict[str, Annotated[float, Field(gt=0, le=1)]]
"""Minimum values of metrics, 0..1."""
Precision = Literal["auto", "bf16", "float32"]
"""Number type of the frozen weights."""
Roles = Annotated[tuple[str, ...], BeforeValidator(_read_roles)]


def _from_environment(settings: Iterable[str]) -> dict[str, Any]:
    """Return the settings that ``AGENTGYM_`` variables give, by name.

    Unknown variables keep their own name, so that validation reports them.
    """
    names = {variable_of(name): name for name in (*settings, *FLAT_KEYS)}
    others = set(map(variable_of, OTHER_VARIABLES))
    found: dict[str, Any] = {}
    for variable, text in os.environ.items():
        if variable.upper().startswith(PREFIX) and variable.upper() not in others:
            name = names.get(variable.upper(), variable)
            found[name] = text
            if name in _MAPPINGS:
                with suppress(ValueError):  # validation reports other texts
                    found[name] = json.loads(text)
    return found


class TrainingConfig(Settings):
    """Settings of one training run.

    Values come from arguments, a YAML file (:meth:`from_yaml`) and environment
    variables (``AGENTGYM_EPISODES=500``). Arguments win over the file, the file wins
    over variables. Unknown keys and unknown ``AGENTGYM_`` variables are errors.

    Settings of ``agent``, ``judge``, ``rent`` and ``verl`` are nested, e.g.
    ``judge={"model": "openai:gpt-4.1-mini", "weight": 1}``. They also have flat keys,
    e.g. ``judge_weight``: see :data:`~agentgym.core.nested.keys.FLAT_KEYS`. If a
    setting applies to some engines only, its description begins with their names.

    Attributes:
        scenario: Name of a scenario, path of a scenario's folder or file, or a tasks
            file with its options (see :class:`~agentgym.core.task.TaskSource`).
        framework: The agent's framework: ``langchain``, ``autogen``, ``crewai``,
            ``openai_agents``, ``pydantic_ai``, ``agent_framework``, ``native``, …
        agent: Your agent, to train instead of the scenario's own: ``module:name`` of
            the agent or of a function that creates it, or ``command:`` and a program's
            command; or its settings: :class:`~agentgym.core.agent.AgentSource`.
        model: ``nano`` or ``smollm2``, a folder, a Hugging Face id, or a GGUF file.
        engine: ``local`` (torch, in process), ``vllm`` (vLLM samples, torch learns),
            ``verl`` (many GPUs), ``lightning`` (Agent Lightning's trainer), or the
            engine of an installed package. ``auto`` takes ``vllm`` if it is
            installed and this machine's GPU has enough memory, else ``local``.
        gpus_per_node: ``verl`` and ``lightning``: GPUs on each machine. ``vllm``: with
            1, vLLM and the learner share the GPU; with more, the learner uses one GPU
            and vLLM uses the others.
        tensor_parallel: All engines but ``local``: GPUs that share one copy of the
            sampling model.
        memory_share: All engines but ``local``: share of each GPU's memory for
            sampling, 0..1. None means 0.9 if sampling has the GPU alone; else the value
            nearest to 0.5 that gives sampling and training enough memory.
        tool_format: The format in which the model writes tool calls; ``auto`` detects
            the format from the chat template.
        chat_template: A chat template to use instead of the model's own: its text, a
            file, or ``hermes`` for the built-in template.
        thinking: Whether the chat template asks the model to reason before it answers;
            ``auto`` leaves that to the template.
        chat_template_kwargs: Further variables of the chat template, by name.
        constrain: ``calls`` restricts the tokens of tool calls to those that the tools'
            schemas allow; ``none`` restricts nothing; ``auto`` is ``calls`` for a model
            that was trained with ``calls``, else ``none``.
        verl: Settings of the engine ``verl``, see
            :class:`~agentgym.core.nested.groups.VerlSettings`.
        vllm: ``vllm``: further flags of ``vllm serve``, e.g. ``{"max_num_seqs": 64}``.
        gpu: Where to train. ``auto``: on a local GPU, else on the CPU. ``local``: on a
            local GPU only. ``none``: on the CPU. ``ssh:user@host`` or
            ``ssh:user@host:port``: on that machine. ``runpod``, ``lambda``, ``sky`` or
            another provider: on a rented machine; ``runpod:A100`` rents an A100.
        rent: Limits of rented machines:
            :class:`~agentgym.core.nested.groups.RentSettings`.
        episodes: Maximum number of training rollouts. With 0 and ``warm_start``, the
            run ends after the warm start.
        time: Time limit of the whole run: seconds, or a text such as ``30m``. The run
            measures how long its first rollouts take. Then it chooses how many held-out
            tasks, validation tasks and steps fit into the limit. If None, only
            ``episodes`` limits the run.
        seed: Seed of tasks, sampling and initialisation.
        deterministic: Make two runs with the same seed give identical weights. This is
            slower.
        group_size: Rollouts per task in a step. Their rewards are compared with each
            other.
        tasks_per_step: Tasks per policy update.
        task_choice: ``adaptive`` prefers tasks, and families (kinds of tasks), in which
            attempts at the same task got different rewards, since the others give no
            advantage; ``uniform`` takes each task in turn.
        algorithm: ``rloo`` (arXiv:2402.14740), ``grpo`` (arXiv:2402.03300),
            ``dr_grpo`` (arXiv:2503.20783), ``dapo`` (arXiv:2503.14476),
            ``reinforce++`` (arXiv:2501.03262) or, with ``verl`` alone, ``ppo`` with a
            value model (arXiv:1707.06347).
        prompts: System prompts and tool descriptions that replace the agent's own in
            requests to the model: a file that ``agentgym improve`` wrote, or its text.
        train_roles: Names of the agents in a team that are trained; None means all. The
            other agents use the same weights, but their calls are not trained on.
        role_adapters: ``local``: train a separate LoRA adapter for each of
            ``train_roles``. The other agents use the untrained model.
        train_tokens: The tokens of its responses that the model learns from: ``calls``
            (tool calls), ``calls+reasoning``, or ``all`` (for a reward that reads the
            text of the answer). None means the scenario's value, by default ``calls``.
        judge: The model that ranks the successful attempts at a task, as in
            ``openai:gpt-4.1-mini``; or its settings:
            :class:`~agentgym.core.nested.groups.JudgeSettings`.
        failure_cost: Penalty for a failed tool call, subtracted from the advantage of
            its model call. Unit: reward; for ``grpo`` and ``dapo`` the standard
            deviation of the group's rewards, for ``reinforce++`` of the batch's. The
            penalty is three times as high if the same call failed the same way before.
        learning_rate: AdamW's peak learning rate; it falls linearly to a tenth at the
            end of the budget. None means the model's default.
        entropy_coefficient: Weight of the entropy bonus.
        kl_coefficient: Weight of the KL penalty against the untrained model (k3, per
            trained token); 0 does not compute it.
        ratio_limit: ``local`` and ``vllm``: updates skip sequences whose probability
            ratio of learner to sampler (geometric mean over tokens, before the update)
            is above this number or below its inverse. None skips no sequence.
        warm_start: Fine-tune on the calls that training tasks need (``needed_calls``)
            before reinforcement learning. This helps a model that rarely succeeds.
        warm_start_tasks: Maximum number of training tasks for the warm start; None
            means 4,500 for small models such as nano, 320 for others.
        temperature: Sampling temperature in training.
        eval_temperature: Sampling temperature in evaluations. The default value is not
            sent to a provider's model; another value is sent with requests in which the
            agent sets no temperature.
        cache_requests: A file that keeps a server's answers, to answer equal requests
            from it. Only for evaluations at ``eval_temperature`` 0, never in training.
        max_tokens: Maximum number of tokens in one response; None means 160 for small
            models such as nano, 1,024 for others, 4,096 for models that reason first.
        lora_rank: Rank of the LoRA adapter; 0 trains all weights. None means 0 for
            nano, 16 for other models. An adapter in the model's folder keeps its own
            rank.
        precision: ``local`` and ``vllm``: number type of the weights that a LoRA
            adapter leaves frozen. ``auto`` takes bfloat16 if the GPU supports it (with
            ``local`` also if the CPU does), else float32. Trained weights are always
            float32.
        gradient_checkpointing: ``local`` and ``vllm``: recompute layers in the backward
            pass to save memory. None does this only if memory is short.
        max_episode_tokens: Model calls with more tokens than this, prompt and response
            together, are not trained on. None means 8,192, or 4,096 or 2,048 on a GPU
            with little memory.
        eval_every: Number of updates between two validations.
        eval_tasks: Number of tasks of a validation. It takes fewer while validations
            are more than a fifth of all rollouts, and more when the goal is in sight.
        test_tasks: Number of held-out tasks for the comparison before and after
            training.
        eval_samples: Number k of attempts at each held-out task. They give pass^1, the
            share of attempts that succeed, and pass^k, the probability that k attempts
            all succeed.
        token_prices: Prices of the model that the trained one replaces, as in
            ``0.4,0.1,1.6``: of prompt tokens, of cached ones and of sampled ones. Only
            their ratio counts, for the cost of a task and ``cost_reduction``.
        forgetting_questions: Number of questions, unrelated to the scenario, that show
            how much training changes the model's answers; 0 asks no questions. Short
            runs ask fewer.
        early_stop: End the run before its budget is spent when the goal is reached, or
            when validation has stopped rising.
        goal: The goal of training: minimum values of metrics, as in ``pass_1=0.9``.
            The run ends when it is reached, or when it is out of reach within the
            budget. None means the scenario's success criteria; then it goes on as long
            as validation rises.
        yes: Continue although the baseline shows that training will probably fail.
        workers: Number of worker processes. If None, the model and the number of CPU
            cores decide.
        concurrency: Number of episodes that run at once in each worker. If None, the
            model and the device decide; at most 64.
        rollout_timeout_s: Wall seconds after which a hanging episode is ended; None
            means 60 for small models such as nano, at least 600 for others and for
            programs.
        max_attempts: Number of times a rollout is tried before it is dropped.
        unsafe_local_exec: Run model-written code without a sandbox.
        private: Keep prompts, answers, arguments and tool results out of the files that
            the run writes; training has them in memory.
        tracker: Where to log metrics: ``tensorboard``, ``wandb`` or ``none``.
        name: Name of the saved agent and of the run. None derives it from the agent's
            module or attribute, or from the scenario.
        output: Folder in which each run creates its own folder.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    scenario: str = "coding"
    framework: str = "langchain"
    agent: AgentSource = AgentSource()
    model: str = "nano"
    engine: str = AUTO_ENGINE
    gpus_per_node: int = Field(default=1, ge=1, le=1000)
    tensor_parallel: int = Field(default=1, ge=1, le=1000)
    memory_share: float | None = Field(default=None, gt=0, lt=1)
    tool_format: str = "auto"
    chat_template: str = ""
    thinking: Thinking = "auto"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    constrain: Constrain = "auto"
    verl: VerlSettings = VerlSettings()
    vllm: dict[str, Any] = Field(default_factory=dict)
    gpu: Annotated[str, AfterValidator(check_gpu)] = "auto"
    rent: RentSettings = RentSettings()
    episodes: int = Field(default=10_000, ge=0, le=_MOST)
    time: Annotated[float | None, BeforeValidator(_read_time)] = Field(
        default=None, gt=0, le=LONGEST_S
    )
    seed: int = Field(default=0, ge=0, lt=2**63)
    deterministic: bool = False
    group_size: int = Field(default=8, ge=2, le=MANY)
    tasks_per_step: int = Field(default=8, ge=1, le=MANY)
    task_choice: Literal["adaptive", "uniform"] = "adaptive"
    algorithm: Algorithm = "rloo"
    prompts: PathText = ""
    train_roles: Roles | None = None
    role_adapters: bool = False
    train_tokens: TrainTokens | None = None
    judge: JudgeSettings = JudgeSettings()
    failure_cost: float = Field(default=0.2, ge=0)
    learning_rate: float | None = Field(default=None, gt=0)
    entropy_coefficient: float = Field(default=0.0, ge=0)
    kl_coefficient: float = Field(default=0.0, ge=0)
    ratio_limit: float | None = Field(default=2.0, gt=1)
    warm_start: bool = False
    warm_start_tasks: int | None = Field(default=None, ge=8, le=MANY)
    temperature: float = Field(default=1.0, gt=0)
    eval_temperature: float = Field(default=0.5, ge=0)
    cache_requests: Path | None = None
    max_tokens: int | None = Field(default=None, gt=0, le=_MOST)
    lora_rank: int | None = Field(default=None, ge=0, le=MANY)
    precision: Precision = "auto"
    gradient_checkpointing: bool | None = None
    max_episode_tokens: int | None = Field(default=None, gt=0, le=_MOST)
    eval_every: int = Field(default=5, gt=0, le=_MOST)
    eval_tasks: int = Field(default=64, gt=0, le=MANY)
    test_tasks: int = Field(default=96, gt=0, le=MANY)
    eval_samples: int = Field(default=4, ge=1, le=MANY)
    token_prices: Annotated[Prices, BeforeValidator(read_prices)] = USUAL_PRICES
    forgetting_questions: int = Field(default=50, ge=0, le=50)
    early_stop: bool = True
    goal: Annotated[Minimums | None, BeforeValidator(_read_goal)] = None
    yes: bool = False
    workers: int | None = Field(default=None, gt=0, le=1000)
    concurrency: int | None = Field(default=None, gt=0, le=MANY)
    rollout_timeout_s: float | None = Field(default=None, gt=0, le=LONGEST_S)
    max_attempts: int = Field(default=3, ge=1, le=MANY)
    unsafe_local_exec: bool = False
    private: bool = False
    tracker: Literal["tensorboard", "wandb", "none"] = "tensorboard"
    name: Annotated[str, AfterValidator(check_name)] | None = None
    output: Path = Path("runs")

    @property
    def answer_tokens(self) -> int:
        """The setting ``max_tokens``; if it is None, the default for small models."""
        return self.max_tokens or SMALL_ANSWER

    @property
    def episode_tokens(self) -> int:
        """The setting ``max_episode_tokens``; if it is None, 8,192."""
        return self.max_episode_tokens or LONGEST_EPISODE

    @property
    def in_flight(self) -> int:
        """The setting ``concurrency``; if it is None, 64."""
        return self.concurrency or MOST_IN_FLIGHT

    @property
    def timeout_s(self) -> float:
        """The setting ``rollout_timeout_s``; if it is None, 60 seconds."""
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
        """The scenario's name without the folder and options of its path."""
        if self.scenario.partition("?")[0].endswith(".jsonl"):
            return TaskSource.parse(self.scenario).name
        reference = self.scenario.partition("?")[0]
        return PurePath(reference).name.removesuffix(".py")

    @property
    def agent_name(self) -> str:
        """Name of the saved agent, made from ``name``, the agent or the scenario."""
        if self.name is not None:
            return re.sub(_STAMP, "", self.name)
        if self.agent.reference is None:
            return self.scenario_name
        if is_command(self.agent.reference):
            name = program_name(self.agent.reference)
            is_telling = name and not _SAYS_NOTHING.fullmatch(name)
            return name if is_telling else self.scenario_name
        module, _, attribute = self.agent.reference.partition(":")
        names = module.split(".")
        if module.endswith(".py"):
            names = [re.sub(r"\W", "_", PurePath(module).stem)]
        parts = [attribute, *reversed(names)]
        telling = (part for part in parts if not _SAYS_NOTHING.fullmatch(part))
        return next(telling, parts[1]).strip("_") or self.scenario_name

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, values: Any) -> Any:
        """Add the settings of environment variables, and put all into nested form."""
        if not isinstance(values, Mapping):
            return values
        given = _from_environment(cls.model_fields)
        return nested({**flattened(given), **flattened(values)})

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, sorted.

        A nested setting has two names, e.g. ``judge_weight`` and ``judge.weight``.
        """
        return sorted({*cls.model_fields, *FLAT_KEYS, *FLAT_KEYS.values()})

    @classmethod
    def flat(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` with dotted names for nested settings."""
        return flattened(values)
