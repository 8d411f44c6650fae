"""Run trials of a user's agent, in which it calls each of its tools; report them."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.agent import is_command
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.json_schema import properties
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task, TaskSource
from agentgym.core.tools import ToolSpec, result_text
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.engines.tokens.grammar import check_form
from agentgym.errors import AgentGymError, UnsupportedError
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.integrations.witness import seen
from agentgym.rollout.agent_trial import (
    TrialCalls,
    calls_ending,
    calls_replaced,
    has_crashed,
    is_lost,
    is_unfit,
    misfits,
    misspelt,
    offered_tools,
    untried,
)
from agentgym.rollout.prompt_length import compare_with_context
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.rollout.workers.assemble import NOT_RUN
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, usual_tools
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec, learn_from, unseen
from agentgym.security.redaction import quoted

_TRIAL_S = 20.0
_PROGRAM_TRIAL_S = 120.0  # starting a program with large packages takes long
_MOST_TRIALS = 12
_MOST_CRASHES = 4
_MOST_TASKS = 4
# The fate of calls that pass control to another agent.
PASSES_ON = "runs: it passes control on"
IS_ANSWER = "is its answer"
_RUNS = "really runs"


@dataclass(frozen=True)
class RoleFound:
    """One role (an agent of a team) that was found in the user's agent."""

    name: str
    prompt: str | None  # None if it is unknown
    tools: list[dict[str, Any]]  # in OpenAI's form
    model: str  # a description; empty if it is unknown


@dataclass(frozen=True)
class AgentReport:
    """The result of inspecting a user's agent before training."""

    agent: str  # ``module:name``
    framework: str
    kind: str  # type of the agent object
    way: str  # how AgentGym replaces the agent's model
    roles: list[RoleFound]
    # Names of tools whose calls the task answers.
    bound: list[str] = field(default_factory=list)
    # How calls of the agent's other tools are answered, by tool name.
    own: dict[str, str] = field(default_factory=dict)
    # Names of scenario tools that the agent does not offer to its model.
    missing: list[str] = field(default_factory=list)
    # Warnings, e.g. about tools whose schema differs from the scenario's.
    concerns: list[str] = field(default_factory=list)
    # Reasons why the agent cannot be trained; empty if it can.
    problems: list[str] = field(default_factory=list)
    # Options with which the same command may do; None if another is to be tried.
    options: tuple[str, ...] | None = ()
    # Names of tools in `own` for which the user chose no way to answer calls.
    undecided: list[str] = field(default_factory=list)
    too_long: str = ""  # why all prompts exceed the model's context
    model_calls: int | None = None  # in the trials; None without a trial
    # Tools and forms that the model was offered in the trials, as OpenAI functions.
    offered: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Names of a team's agents that its messages may name.
    members: list[str] = field(default_factory=list)
    # Names of tools that were offered, and that no trial came to call.
    not_called: list[str] = field(default_factory=list)


def probed(config: TrainingConfig) -> AgentReport:
    """Run trials of the agent of ``config`` with a scripted model, and report on them.

    A trial is an attempt at a task of the scenario, in which the scripted model calls
    the offered tools with made-up arguments. The tools do not really run, except those
    that the agent's code calls directly, without AgentGym. Other machines cannot be
    reached.
    """
    given = get_scenario(config.scenario)
    scenario = given.rehearsal()
    try:
        return _try(config, scenario, given.live_tools())
    finally:
        scenario.close()


def require_trainable(config: TrainingConfig, report: AgentReport) -> None:
    """Raise UnsupportedError with the reasons if the agent cannot be trained."""
    problems = report.problems or [report.too_long]
    if any(problems):
        raise UnsupportedError(
            f"{report.agent} cannot be trained on {config.scenario_name} as it is. "
            f"{' '.join(problems)}",
            report.options,
        )


def _undescribed(offered: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    names = [name for name, tool in offered.items() if not tool.get("description")]
    if names:
        yield (
            f"Without a description: {', '.join(names)}. A model has names and "
            "arguments alone to go by; a docstring makes a tool easier to learn."
        )


def _roles(trials: list[Trajectory], models: Mapping[str, str]) -> list[RoleFound]:
    """Return the agents that made requests, as their requests show them."""
    found: dict[str, RoleFound] = {}
    every = set(models.values())
    usual = every.pop() if len(every) == 1 else ""
    for call in (call for trial in trials for call in trial.model_calls):
        first = call.messages[0] if call.messages else {}
        is_prompt = first.get("role") in ("system", "developer")
        prompt = result_text(first["content"]) if is_prompt else None
        role = found.setdefault(
            call.agent, RoleFound(call.agent, prompt, [], models.get(call.agent, usual))
        )
        role.tools.extend(each for each in call.tools if each not in role.tools)
    return list(found.values())


def _differ(function: Mapping[str, Any], scenarios: ToolSpec) -> Iterable[str]:
    if isinstance(scenarios, UnseenSpec):
        return
    name = scenarios.name
    given = function.get("parameters")
    mine, theirs = properties(given), properties(scenarios.parameters)
    for key in mine.keys() - theirs.keys():
        yield f"{name}: the scenario's tool takes no {key!r}."
    for key in theirs.keys() - mine.keys():
        needed = key in scenarios.parameters.get("required", [])
        word = "wants" if needed else "also takes"
        yield f"{name}: the scenario's tool {word} {key!r}."
    for key in mine.keys() & theirs.keys():
        kinds = mine[key].get("type"), theirs[key].get("type")
        if kinds[0] != kinds[1]:
            yield f"{name}: {key!r} is {kinds[0]} here, {kinds[1]} there."


def _try(
    config: TrainingConfig, scenario: Scenario, allowed: frozenset[str]
) -> AgentReport:
    assert config.agent.reference is not None
    [task] = make_tasks(scenario, Split.TRAIN, config.seed, 1)
    trial_s = _PROGRAM_TRIAL_S if is_command(config.agent.reference) else _TRIAL_S
    trial = config.replaced(
        scenario=_rehearsed(config.scenario),
        **{"agent.own_tools": "stub"},
        workers=1,
        concurrency=1,
        max_attempts=1,
        rollout_timeout_s=min(trial_s, config.timeout_s),
    ).model_copy(update={"allow_tools": ()})
    specs = {spec.name: spec for spec in usual_tools(scenario, config.seed)}
    calls = TrialCalls(
        scenario.max_turns,
        addressee=FRAMEWORKS.get(config.framework).addressee,
        right={c.tool: c.arguments for c in scenario.needed_calls(task) or ()},
    )

    def answer(request: ChatRequest) -> Reply:
        check_form(request)
        calls.roles |= dict.fromkeys(session.agent.get("members", ()))
        return calls(request)

    policy = ScriptedPolicy(answer)
    policy.gives_forms = config.engine in (AUTO_ENGINE, "local", "vllm")
    made, tried = list[Trajectory](), [task]
    late, problems = unseen(specs.values()), list[str]()
    wanted = specs.keys() if scenario.has_late_tools else late.keys()
    with TemporaryDirectory(prefix="agentgym-trial-") as scratch:
        folder = Path(scratch)
        notes = folder / "seen.jsonl"
        with RolloutSession(trial, policy, folder, 1, witness=notes) as session:
            for n in range(_MOST_TRIALS):
                calls.begin(has_crashed=bool(made) and has_crashed(made[-1]))
                name = f"trial-{n}"
                asked = RolloutRequest(name, tried[-1], True, group=name, step=0)
                try:
                    made += session.run([asked], lambda _: None)
                except AgentGymError as error:
                    if session.refusal is not None:
                        raise session.refusal from None
                    problems = [str(error)]
                    break
                calls.learn(
                    made[-1], (x["passes"] for x in seen(notes) if "passes" in x)
                )
                learn_from(late, made[-1])
                if has_crashed(made[-1]) and n < _MOST_CRASHES:
                    continue  # other values may do
                if is_lost(made[-1]) or is_unfit(made[-1]):
                    break
                missing = wanted - offered_tools(made).keys()
                if calls.has_called and (calls.left or missing):
                    continue
                # Another attempt would be the same, but at a task of other calls.
                other = untried(scenario, late, tried)
                if other is None or len(tried) == _MOST_TASKS:
                    break
                tried.append(other)
            facts, lines = session.agent, seen(notes)
    models = facts.get("members", {}) | {
        x["role"]: x["model"] for x in lines if "model" in x
    }
    offered = offered_tools(made)
    report = AgentReport(
        agent=config.agent.reference,
        framework=config.framework,
        kind=facts.get("kind", ""),
        way=facts.get("way", ""),
        roles=_roles(made, models),
        concerns=[
            *(d for n in offered if n in specs for d in _differ(offered[n], specs[n])),
            *facts.get("notes", ()),
            *dict.fromkeys(x["note"] for x in lines if "note" in x),
            *_undescribed(offered),
        ],
        problems=problems,
        model_calls=sum(len(each.model_calls) for each in made),
        offered=offered,
        members=list(facts.get("members", ())),
        not_called=calls.never_made,
    )
    if problems:
        return report
    report = _fates(report, config, scenario, calls, specs)
    trained = config.train_tokens or scenario.train_tokens
    verdict = _Verdict(
        report, made, task, scenario, specs, allowed, late, lines, trained == "all"
    )
    refusal = verdict.refusal()
    if refusal is None and not config.yes:
        wrong = misspelt(scenario, late, offered)
        refusal = (wrong, ()) if wrong else None
    warnings = verdict.concerns(is_refused=refusal is not None)
    report = replace(report, concerns=[*report.concerns, *warnings])
    if refusal is not None:
        text, options = refusal
        return replace(report, problems=[text + verdict.blocked()], options=options)
    prompts = [trial.model_calls for trial in made]
    too_long, note = compare_with_context(config, prompts)
    concerns = [*report.concerns, *([note] if note else [])]
    return replace(report, concerns=concerns, too_long=too_long)


def _fates(
    report: AgentReport,
    config: TrainingConfig,
    scenario: Scenario,
    calls: TrialCalls,
    specs: Mapping[str, ToolSpec],
) -> AgentReport:
    """Add to a report how the calls of each offered tool are answered."""
    adapter = FRAMEWORKS.get(config.framework)
    if adapter.runs_tools:
        return replace(
            report,
            own=dict.fromkeys(report.offered, _RUNS),
            missing=sorted(specs.keys() - report.offered.keys()),
        )

    def names_agent(function: Mapping[str, Any]) -> bool:
        return adapter.addressee in properties(function.get("parameters"))

    bound, own = [], {}
    for name, function in report.offered.items():
        if name in specs or (name in calls.answered and scenario.has_late_tools):
            bound.append(name)
        elif name in calls.answers:
            own[name] = IS_ANSWER
        elif names_agent(function) or name in calls.passing:
            own[name] = PASSES_ON
        elif name in config.agent.allow_tools:
            own[name] = _RUNS
        elif name in calls.answered:
            is_stub = config.agent.own_tools == "stub"
            own[name] = "is answered with made-up values" if is_stub else ""
    undecided = [name for name, fate in own.items() if not fate]
    return replace(
        report,
        bound=bound,
        own=own,
        missing=sorted(specs.keys() - report.offered.keys()),
        undecided=undecided,
    )


def _undecided(report: AgentReport, scenario: Scenario) -> str:
    names = report.undecided
    return (
        f"{scenario.name} has no tools named {', '.join(names)}, which the agent has. "
        "Choose an answer to their calls: --tools stub answers them with made-up "
        f"values, and --allow-tool {names[0]} lets one really run, again and again. Or "
        "describe your own tasks with the agent's own tools in a file: --tasks FILE."
    )


def _rehearsed(reference: str) -> str:
    if not is_tasks_file(reference):
        return reference
    source = TaskSource.parse(reference)
    if source.answers == "live":
        source = replace(source, answers="recorded", allow=())
    return str(source)


@dataclass
class _Verdict:
    """Whether an agent can be trained as its trials went, and what to know of it."""

    report: AgentReport
    trials: list[Trajectory]
    task: Task  # of the first trial
    scenario: Scenario
    specs: Mapping[str, ToolSpec]
    allowed: frozenset[str]  # tools that may really run
    late: Mapping[str, UnseenSpec]  # tools that no request had shown before the trials
    lines: list[Mapping[str, Any]]  # the notes of the trials
    trains_text: bool

    def __post_init__(self) -> None:
        found = (x["host"] for x in self.lines if "host" in x and not x["outside"])
        self.hosts = list(dict.fromkeys(found))  # that the trials blocked
        self.allow_host = ("--allow-host", *self.hosts[:1]) if self.hosts else ()
        self.made = next(filter(is_lost, self.trials), self.trials[0])
        self.is_unfit = not is_lost(self.made) and is_unfit(self.trials[-1])
        self.adapter = FRAMEWORKS.get(self.report.framework)
        self.runs_tools = self.adapter.runs_tools

    def refusal(self) -> tuple[str, tuple[str, ...] | None] | None:
        """Return why the agent cannot be trained, and options that may do; or None."""
        made, offered = self.made, self.report.offered
        is_lost_outside = any(x.get("outside") for x in self.lines)
        seen = self.specs.keys() & offered.keys()
        past = [
            name for name in self._answered_by_its_code() if name not in self.allowed
        ]
        if made.reason is not None and made.reason.kind == "interrupt":
            return (
                f"In a trial it waited for a person: {made.reason.detail}. Let the "
                "scenario's user answer (Environment.user_reply), or leave the "
                "question out in training."
            ), ()
        if "response_format = " in str(made.reason):
            return _in_a_form(self.report), ("--engine", "local")
        if made.status is RolloutStatus.DROPPED and is_lost_outside:
            return _threads(self.report), self.allow_host
        if made.status is RolloutStatus.DROPPED:
            return f"In a trial it did not finish: {_why(made)}", self.allow_host
        if not offered and not self.trains_text:
            words = ("--set", "train_tokens=all")
            why = (
                "In a trial its model was offered no tool, so that there is nothing to "
                "learn: bind the tools to the model. Or train the words of its "
                f"answers, by a check that reads them: {' '.join(words)}."
            )
            is_checked = getattr(self.scenario, "check", None) is not None
            has_check = is_checked and self.scenario.has_check
            return why, words if has_check else self.allow_host
        if self.specs.keys() - self.late and not seen and not self.is_unfit:
            return (
                f"In a trial its model was offered {', '.join(offered)}, and none of "
                f"the tools of {self.scenario.name}: {', '.join(sorted(self.specs))}. "
                "For a first file of tasks of its own:\n"
                f"    agentgym train --agent {self.report.agent}"
            ), None
        if self.report.undecided:
            return _undecided(self.report, self.scenario), ("--tools", "stub")
        if past:
            live = ("--tools", "live", "--allow-tool", past[0])
            return (
                f"Calls of {', '.join(past)} are answered by the agent's own code, "
                "past training. Make them tools of the framework (for LangGraph: @tool "
                "and a ToolNode, or tool.invoke in your node). Or let that code answer "
                f"them, again and again in training: {' '.join(live)}."
            ), live
        if wrong := misfits(self.scenario, self.late):
            return wrong, ()
        return None

    def concerns(self, *, is_refused: bool) -> Iterator[str]:
        """Yield warnings about the agent's behaviour in training."""
        report, offered = self.report, self.report.offered
        never = [name for name in self.late if name not in offered]
        crashed = [each for each in self.trials if has_crashed(each)]
        known = {*report.bound, *report.own, *report.not_called}
        unknown = [name for name in offered if name not in known]
        answering = [
            name for name in self._answered_by_its_code() if name in self.allowed
        ]
        if never and not is_refused:
            ends = {each.reason.kind for each in self.trials if each.reason}
            yield _never_offered(never, offered) + _LIMITED * ("max_turns" in ends)
        if not is_refused and not self._is_heard():
            where = "on standard input, or where its command says {task}"
            yield (
                "No prompt of the trial had the task's request in it: "
                f"{quoted(self.task.instruction, 60)}. Unless the agent rewrites it, "
                "all tasks are the same to its model."
                + f" A program gets it {where}."
                * is_command(self.report.agent)
            )
        if crashed:
            ended = f"{len(crashed)} of {len(self.trials)} trials"
            why = crashed[-1].reason.detail if crashed[-1].reason else ""
            argument = getattr(self.adapter, "context_argument", "")
            yield (
                f"Its own code crashed in {ended}, after a made-up answer of its "
                f"model: {why}. In training such a crash is the model's failure. If it "
                "has another cause, mend that first."
                + f" The `{argument}` that your code gives to a run comes from "
                "--context module:function." * bool(argument and "'NoneType'" in why)
            )
        if unknown and not self.runs_tools:
            yield (
                f"Its model is also offered {', '.join(unknown)}, whose calls the "
                "agent's own code answers, and really runs. Tasks that expect such "
                f"calls want --tools live --allow-tool {unknown[0]}."
            )
        if answering:
            yield (
                f"Calls of {', '.join(answering)} are answered by the agent's own "
                "code, which really runs, again and again; its answers are recorded."
            )
        if self.is_unfit:
            yield (
                "It asks its model for any JSON object, and its own code refused one "
                "that was made up, so that the trial went no further. In training such "
                "an answer is the model's failure. Ask with a schema, as "
                "with_structured_output does by default, and every answer fits."
            )
        elif not is_refused and (replaced := calls_replaced(self.trials)):
            yield (
                f"Calls of {', '.join(replaced)} that the agent's own code replaces by "
                "others are not counted as calls; those that replace them are."
            )
        if ending := calls_ending(self.trials):
            yield (
                f"Calls of {', '.join(ending)} end the agent, and count as made. Where "
                "its own code does something at such a call, that is really done."
            )
        if self.hosts and not is_refused:
            yield (
                f"In the trial it tried to reach {', '.join(self.hosts)}; this was "
                f"blocked. In training it is not. {' '.join(self.allow_host)} lets it "
                "through in the trial, too."
            )

    def _is_heard(self) -> bool:
        """Return whether a prompt of the trials has the words of the request in it."""

        def words(value: Any) -> str:
            written = re.sub(r"\\+[nrt]", " ", json.dumps(value, ensure_ascii=False))
            return " ".join(["", *re.findall(r"\w+", written), ""])

        calls = (call for trial in self.trials for call in trial.model_calls)
        return words(self.task.instruction) in words([call.messages for call in calls])

    def _answered_by_its_code(self) -> list[str]:
        """Return the task's tools whose calls did not come to training."""
        calls = (call for trial in self.trials for call in trial.get_tool_calls())
        not_run = (
            call.name
            for call in calls
            if call.name in self.specs and call.result == f"Error: {NOT_RUN}"
        )
        return [] if self.runs_tools else list(dict.fromkeys(not_run))

    def blocked(self) -> str:
        """Return a sentence on the hosts that the trials blocked; "" if none."""
        if not self.hosts:
            return ""
        return (
            f" It tried to reach {', '.join(self.hosts)}, which a trial blocks. If the "
            "agent's own code needs that, as a database or a file to download, let it "
            f"through: {' '.join(self.allow_host)}."
        )


_LIMITED = (
    " The trials ended at the limit of model calls; a first line of the tasks file "
    'raises it: {"max_turns": 20}.'
)


def _never_offered(names: list[str], offered: Collection[str]) -> str:
    close = get_close_matches(names[0], offered, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    return (
        f"The tasks name {', '.join(names)}{meant}, which no trial saw offered to a "
        "model. Where an agent offers it only after other answers, leave it: its calls "
        "count, by the schema that is offered then. Else write the right name in the "
        f"tasks file; the trials saw {', '.join(offered) or 'no tool'}."
    )


def _why(made: Trajectory) -> str:
    """Return why a trial did not finish; an error of AgentGym is only its message."""
    text = str(made.reason).removesuffix(".")
    why = re.sub(r"^crash: (Usage|Unsupported)Error: ", "", text)
    if "KeyError" not in why:
        return f"{why}."
    return (
        f"{why}. If a key of its state is missing, give it with --inputs "
        "module:function, a function of the task that returns a dict; one of its "
        "config's with --configurable KEY=VALUE."
    )


def _threads(report: AgentReport) -> str:
    pool = (
        "langchain_core.runnables.config.ContextThreadPoolExecutor, or start them with "
        if report.framework == "langchain"
        else ""
    )
    return (
        "In a trial its model was asked outside of the rollout: threads that the agent "
        f"starts itself do not carry it. Use {pool}contextvars.copy_context().run."
    )


def _in_a_form(report: AgentReport) -> str:
    by_a_tool = "Let the model call a tool with these arguments."
    if report.framework == "langchain":
        by_a_tool = (
            "Ask for it by a tool: response_format=ToolStrategy(Schema), or "
            'with_structured_output(Schema, method="function_calling").'
        )
    return (
        "In a trial it asked its model for a structured answer (response_format), "
        "which the engines verl and lightning cannot hold a policy to. "
        f"{by_a_tool} Or train it with another engine."
    )
