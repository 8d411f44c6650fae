"""TrainingConfig: every setting of a run, from code, YAML or the environment."""

import math
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from agentgym.core.agent import AgentSource, is_command, program_name
from agentgym.core.components import TrainTokens
from agentgym.core.files import check_name
from agentgym.core.machines import check_gpu
from agentgym.core.panels import (
    AGENT,
    LEARNING,
    MACHINE,
    MEASURING,
    MODEL,
    ROLLOUTS,
    RUN,
    TASKS,
    TRAINING,
)
from agentgym.core.prices import USUAL_PRICES, Prices, read_prices
from agentgym.core.registry import loaders
from agentgym.core.settings import LONGEST_S, MANY, PathText, Settings, setting
from agentgym.core.task import TaskSource
from agentgym.core.template_settings import Constrain, TemplateSettings, Thinking
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)
_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_SAYS_NOTHING = re.compile(
    r"(?:(?:make|build|create|get)_?)?(?:agents?|graphs?|teams?|crews?|workflow)?"
    r"|app|main|src|__main__"
)
"""Names such as ``build_agent``, which are too general as the name of an agent."""
_STAMP = r"-\d{8}-\d{6}$"
"""The time stamp at the end of a run's name, if an earlier run had the same name."""
SMALL_ANSWER = 160
"""Default of ``max_tokens`` for small models; nano needs about 40 tokens for a call."""
SMALL_TIMEOUT_S = 60.0
AUTO_ENGINE = "auto"
"""Value of ``engine`` that chooses ``vllm`` or ``local``, depending on the GPU."""
LONGEST_EPISODE = 8192
"""Default of ``max_episode_tokens`` if the memory is large enough."""
MOST_IN_FLIGHT = 64
"""Default of ``concurrency``, equal to the default number of rollouts in a step."""
_PROGRAMS = 16
"""The same for programs: 64 that import large packages at once stop a laptop."""
_IN_TIME = 10_000  # rollouts: more than fit into most time limits
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


def _groups() -> dict[str, Any]:
    """Return a field for each group of settings that plug-ins register."""
    found: dict[str, Any] = {}
    for name, load in loaders("agentgym.settings").items():
        try:
            group = load()
            if group.__module__.partition(".")[0] != "agentgym":
                group()  # a stranger's fails here, not in the settings of a run
            found[name] = (group, Field(default_factory=group))
        except Exception as error:  # noqa: BLE001 - another package's code
            logger.warning("The settings %r cannot be loaded: %s", name, error)
    return found


# Type checkers do not see the groups: read one with ``JudgeSettings.of(config)``.
_WithGroups = Settings
if not TYPE_CHECKING:
    _WithGroups = create_model("_WithGroups", __base__=Settings, **_groups())


class TrainingConfig(_WithGroups):
    """Settings of one training run.

    Values come from arguments, a YAML file (:meth:`from_yaml`) and environment
    variables (``AGENTGYM_EPISODES=500``). Arguments win over the file, the file wins
    over variables. Unknown keys and unknown ``AGENTGYM_`` variables are errors.

    Each setting is described where it is declared, and in the table of docs/cli.md.
    ``agent`` is a group (:class:`~agentgym.core.agent.AgentSource`), and plug-ins bring
    further ones: ``judge={"model": "openai:gpt-4.1-mini", "weight": 1}``, or
    ``**{"judge.weight": 1}``. If a setting applies to some engines only, its
    description begins with their names.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    scenario: str = setting(
        "coding",
        "What to train on: the name of a scenario, the path of a scenario's folder or "
        "file, or a tasks file with its options.",
        TASKS,
    )
    framework: str = setting(
        "langchain",
        "The agent's framework: langchain, autogen, crewai, openai_agents, "
        "pydantic_ai, agent_framework, llamaindex, smolagents, strands, adk, native "
        "(a plain loop), or another installed package's. It is detected from your own "
        "agent.",
        AGENT,
        metavar="langchain|autogen|crewai|...",
    )
    agent: AgentSource = Field(default_factory=AgentSource)
    prompts: PathText = setting(
        "",
        "A file of system prompts and tool descriptions to send instead of the "
        "agent's, which `agentgym improve` wrote, or its text.",
        AGENT,
        metavar="FILE",
    )
    train_roles: Roles | None = setting(
        None,
        "With a team: the roles to train. The others use the same weights, but their "
        "calls are not trained on. None means all.",
        AGENT,
        metavar="NAME,NAME",
    )
    role_adapters: bool = setting(
        False,
        "`local`: with `train_roles`, a LoRA adapter for each of these roles. The "
        "others use the untrained model.",
        AGENT,
        some_engines=True,
    )
    model: str = setting(
        "nano",
        "The model to train: nano, smollm2, a folder, a Hugging Face id, or a GGUF "
        "file.",
        MODEL,
        metavar="nano|FOLDER|OWNER/NAME",
    )
    engine: str = setting(
        AUTO_ENGINE,
        "The engine that updates the model: local (torch, in this process), vllm (vLLM "
        "samples, torch learns), verl (many GPUs), lightning (Agent Lightning's "
        "trainer), or another installed package's. auto takes vllm if it is installed "
        "and this machine's GPU has room, else local.",
        MODEL,
        metavar="auto|local|vllm|verl|lightning",
    )
    tool_format: str = setting(
        "auto",
        "The form in which the model writes tool calls: hermes, xml, json, harmony, "
        "gemma, mistral, pythonic. auto finds it with the chat template.",
        MODEL,
    )
    chat_template: str = setting(
        "",
        "A Jinja chat template to use instead of the model's own: its text, a file, or "
        "hermes for the built-in one.",
        MODEL,
    )
    chat_template_kwargs: dict[str, Any] = setting(
        {}, "Further variables of the chat template, by name.", MODEL
    )
    thinking: Thinking = setting(
        "auto",
        "Whether the model reasons before it answers; auto leaves that to the chat "
        "template.",
        MODEL,
    )
    constrain: Constrain = setting(
        "auto",
        "calls restricts the tokens of tool calls to the tools' schemas; none does "
        "not. auto is calls for a model that was trained so, else none.",
        MODEL,
    )
    gpu: Annotated[str, AfterValidator(check_gpu)] = setting(
        "auto",
        "Where to train: on this machine (auto, local; none: on the processor), on a "
        "rented one (runpod, runpod:A100, lambda, sky) or on your own other one "
        "(ssh:user@host, ssh:user@host:port). auto takes a local GPU if there is one.",
        MACHINE,
        metavar="auto|local|none|runpod|lambda|sky|ssh:USER@HOST",
        may_change=True,
    )
    episodes: int = setting(
        1_792,
        "Most training rollouts. With `time`, 10,000 by default. With 0 and "
        "`warm_start`, the run ends after the warm start.",
        TRAINING,
        metavar="N",
        may_change=True,
        ge=0,
        le=_MOST,
    )
    time: Annotated[float | None, BeforeValidator(_read_time)] = setting(
        None,
        "End within this time, measurements included: 30m, 1h30m, or seconds. The run "
        "measures its first rollouts, and chooses how many held-out tasks, validation "
        "tasks and steps fit.",
        TRAINING,
        metavar="TIME",
        may_change=True,
        gt=0,
        le=LONGEST_S,
    )
    goal: Annotated[Minimums | None, BeforeValidator(_read_goal)] = setting(
        None,
        "Shares to reach, as in pass_1=0.9. The run ends once it does, or when it "
        "cannot any more. None means the scenario's success criteria; then it goes on "
        "as long as validation rises.",
        TRAINING,
        metavar="METRIC=SHARE",
    )
    early_stop: bool = setting(
        True,
        "End the run before its budget is spent when the goal is reached, or when "
        "validation has stopped rising.",
        TRAINING,
    )
    yes: bool = setting(
        False,
        "Rent without a question; train where the baseline gives no hope.",
        RUN,
        may_change=True,
    )
    seed: int = setting(
        0,
        "Seed of tasks, sampling and initialisation.",
        TRAINING,
        metavar="N",
        ge=0,
        lt=2**63,
    )
    deterministic: bool = setting(
        False,
        "The same seed gives the same weights, bit for bit; slower.",
        TRAINING,
        some_engines=True,
    )
    warm_start: bool = setting(
        False,
        "First imitate the calls that training tasks need (supervised fine-tuning). "
        "This helps a model that rarely succeeds.",
        TRAINING,
        may_change=True,
    )
    warm_start_tasks: int | None = setting(
        None,
        "Most training tasks of the warm start. None means 4,500 for small models such "
        "as nano, 320 for others.",
        TRAINING,
        ge=8,
        le=MANY,
    )
    algorithm: Algorithm = setting(
        "rloo",
        "How rewards become advantages: rloo (arXiv:2402.14740), grpo "
        "(arXiv:2402.03300), dr_grpo (arXiv:2503.20783), dapo (arXiv:2503.14476), "
        "reinforce++ (arXiv:2501.03262) or, with verl alone, ppo with a value model "
        "(arXiv:1707.06347).",
        LEARNING,
    )
    group_size: int = setting(
        8,
        "Rollouts per task in a step, whose rewards are compared with each other.",
        LEARNING,
        ge=2,
        le=MANY,
    )
    tasks_per_step: int = setting(
        8, "Tasks per policy update.", LEARNING, ge=1, le=MANY
    )
    task_choice: Literal["adaptive", "uniform"] = setting(
        "adaptive",
        "adaptive prefers tasks, and families of tasks, in which attempts at the same "
        "task got different rewards, since the others give no advantage; uniform takes "
        "each task in turn.",
        LEARNING,
    )
    train_tokens: TrainTokens | None = setting(
        None,
        "The tokens of its responses that the model learns from: calls (tool calls), "
        "calls+reasoning, or all (for a reward that reads the text of the answer). "
        "None means the scenario's value, by default calls.",
        LEARNING,
    )
    failure_cost: float = setting(
        0.2,
        "Penalty for a failed tool call, subtracted from the advantage of its model "
        "call. Unit: reward; for grpo and dapo the standard deviation of the group's "
        "rewards, for reinforce++ of the batch's. It is three times as high if the "
        "same call failed the same way before.",
        LEARNING,
        ge=0,
    )
    learning_rate: float | None = setting(
        None,
        "AdamW's peak learning rate; it falls linearly to a tenth at the end of the "
        "budget. None means the model's default; with models that are not small it "
        "then does not fall, but follows the KL divergence of the updates.",
        LEARNING,
        gt=0,
    )
    entropy_coefficient: float = setting(
        0.0, "Weight of the entropy bonus.", LEARNING, ge=0
    )
    kl_coefficient: float = setting(
        0.0,
        "Weight of the KL penalty against the untrained model (k3, per trained token); "
        "0 does not compute it.",
        LEARNING,
        ge=0,
        some_engines=True,
    )
    ratio_limit: float | None = setting(
        2.0,
        "`local` and `vllm`: updates skip sequences whose probability ratio of learner "
        "to sampler (geometric mean over tokens, before the update) is above this "
        "number or below its inverse. None skips no sequence.",
        LEARNING,
        gt=1,
        some_engines=True,
    )
    lora_rank: int | None = setting(
        None,
        "Rank of the LoRA adapter; 0 trains all weights. None means 0 for nano, 16 for "
        "other models. An adapter in the model's folder keeps its own rank.",
        LEARNING,
        ge=0,
        le=MANY,
    )
    precision: Precision = setting(
        "auto",
        "`local` and `vllm`: number type of the weights that a LoRA adapter leaves "
        "frozen. auto takes bfloat16 if the GPU supports it (with local also if the "
        "CPU does), else float32. Trained weights are always float32.",
        LEARNING,
        some_engines=True,
    )
    gradient_checkpointing: bool | None = setting(
        None,
        "`local` and `vllm`: recompute layers in the backward pass to save memory. "
        "None does this only if memory is short.",
        LEARNING,
        may_change=True,
        some_engines=True,
    )
    max_episode_tokens: int | None = setting(
        None,
        "Model calls with more tokens than this, prompt and response together, are not "
        "trained on. None means 8,192, or 4,096 or 2,048 on a GPU with little memory.",
        LEARNING,
        gt=0,
        le=_MOST,
    )
    temperature: float = setting(
        1.0, "Sampling temperature in training.", ROLLOUTS, gt=0
    )
    max_tokens: int | None = setting(
        None,
        "Most tokens in one response. None means 160 for small models such as nano, "
        "1,024 for others, 4,096 for models that reason first.",
        ROLLOUTS,
        gt=0,
        le=_MOST,
    )
    workers: int | None = setting(
        None,
        "Worker processes. If None, the model and the number of CPU cores decide.",
        ROLLOUTS,
        may_change=True,
        gt=0,
        le=1000,
    )
    concurrency: int | None = setting(
        None,
        "Rollouts in flight per worker. If None, the model and the device decide; at "
        "most 64.",
        ROLLOUTS,
        may_change=True,
        gt=0,
        le=MANY,
    )
    rollout_timeout_s: float | None = setting(
        None,
        "Wall seconds after which a hanging episode is ended. None means 60 for small "
        "models such as nano, at least 600 for others and for programs.",
        ROLLOUTS,
        option="--timeout",
        may_change=True,
        gt=0,
        le=LONGEST_S,
    )
    max_attempts: int = setting(
        3,
        "Number of times a rollout is tried before it is dropped.",
        ROLLOUTS,
        ge=1,
        le=MANY,
    )
    unsafe_local_exec: bool = setting(
        False, "Run model-written code without a sandbox.", RUN
    )
    private: bool = setting(
        False,
        "Keep prompts, answers, arguments and tool results out of the files that the "
        "run writes; training has them in memory.",
        RUN,
    )
    eval_every: int = setting(
        5, "Updates between validations; the last has one.", MEASURING, gt=0, le=_MOST
    )
    eval_tasks: int = setting(
        64,
        "Tasks of a validation. It takes fewer while validations are more than a fifth "
        "of all rollouts, and more when the goal is in sight.",
        MEASURING,
        gt=0,
        le=MANY,
    )
    test_tasks: int = setting(
        96,
        "Held-out tasks for the comparison before and after training.",
        MEASURING,
        gt=0,
        le=MANY,
    )
    eval_samples: int = setting(
        4,
        "Number k of attempts at each held-out task. They give pass^1, the share of "
        "attempts that succeed, and pass^k, the probability that k attempts all "
        "succeed.",
        MEASURING,
        ge=1,
        le=MANY,
    )
    eval_temperature: float = setting(
        0.5,
        "Sampling temperature in evaluations. 0.5, the default, is not sent to a "
        "provider's model; another value is sent with requests in which the agent sets "
        "no temperature.",
        MEASURING,
        ge=0,
    )
    token_prices: Annotated[Prices, BeforeValidator(read_prices)] = setting(
        USUAL_PRICES,
        "Prices of the model that the trained one replaces, as in 0.4,0.1,1.6: of "
        "prompt tokens, of cached ones and of sampled ones. Only their ratio counts, "
        "for the cost of a task and `cost_reduction`.",
        MEASURING,
    )
    forgetting_questions: int = setting(
        50,
        "Questions, unrelated to the scenario, that show how much training changes the "
        "model's answers. 0 asks none; short runs ask fewer.",
        MEASURING,
        ge=0,
        le=50,
    )
    tracker: Literal["tensorboard", "wandb", "none"] = setting(
        "tensorboard", "Where metrics are logged.", RUN
    )
    name: Annotated[str, AfterValidator(check_name)] | None = setting(
        None,
        "Name of the saved agent and of the run. None derives it from the agent's "
        "module or attribute, or from the scenario.",
        RUN,
        metavar="NAME",
    )
    output: Path = setting(
        Path("runs"),
        "Folder of runs; each creates its own folder in it.",
        RUN,
        metavar="FOLDER",
    )

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, values: Any) -> Any:
        """Add the settings of environment variables, and nest those of groups."""
        if not isinstance(values, Mapping):
            return values
        found = {**cls.flat(cls.of_variables()), **cls.flat(values)}
        if found.get("time") is not None:
            found.setdefault("episodes", _IN_TIME)
        return cls.nested(found)

    @property
    def plugin_groups(self) -> dict[str, dict[str, Any]]:
        """The groups of settings of plug-ins, as JSON values by name."""
        names = self.groups().keys() - {"agent"}
        return self.model_dump(mode="json", include=names)

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
        """The setting ``concurrency``; if it is None, 64, or 16 programs."""
        agent = self.agent.reference
        starts_each = agent is not None and is_command(agent) and "{tasks" not in agent
        return self.concurrency or (_PROGRAMS if starts_each else MOST_IN_FLIGHT)

    @property
    def timeout_s(self) -> float:
        """The setting ``rollout_timeout_s``; if it is None, 60 seconds."""
        return self.rollout_timeout_s or SMALL_TIMEOUT_S

    @property
    def template(self) -> TemplateSettings:
        """The settings of the model's chat template."""
        names = TemplateSettings.model_fields
        return TemplateSettings(**{name: getattr(self, name) for name in names})

    def validations(self, steps: int) -> int:
        """Return the number of validations in so many steps, if these end the run."""
        return math.ceil(steps / self.eval_every - 0.5)

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


def agent_reference(settings: Mapping[str, Any]) -> str | None:
    """Return ``agent.reference`` from a run's recorded settings; None if not set."""
    reference = TrainingConfig.flat(settings).get("agent.reference")
    return None if reference is None else str(reference)
