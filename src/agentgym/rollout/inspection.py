"""Run trials of a user's agent, in which it calls each of its tools; report them."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.agent import is_command
from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.json_schema import properties
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
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
    offered_tools,
)
from agentgym.rollout.prompt_length import compare_with_context
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.rollout.workers.assemble import NOT_RUN
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.packs import is_tasks_file
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, usual_tools
from agentgym.scenarios.tool_tasks.unseen import (
    UnseenSpec,
    learn_from,
    misfits,
    misspelt,
    unseen,
)

_TRIAL_S = 20.0
_PROGRAM_TRIAL_S = 120.0  # starting a program with large packages takes long
_MOST_TRIALS = 12
_MOST_CRASHES = 4
PASSES_ON = "runs: it passes control on"
"""The fate of calls that pass control to another agent."""
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
    bound: list[str] = field(default_factory=list)
    """Names of tools whose calls the task answers."""
    own: dict[str, str] = field(default_factory=dict)
    """How calls of the agent's other tools are answered, by tool name."""
    missing: list[str] = field(default_factory=list)
    """Names of scenario tools that the agent does not offer to its model."""
    differences: list[str] = field(default_factory=list)
    """Sentences about tools whose schema differs from the scenario's."""
    concerns: list[str] = field(default_factory=list)
    """Warnings about the agent's behaviour in training."""
    problems: list[str] = field(default_factory=list)
    """Reasons why the agent cannot be trained; empty if it can."""
    undecided: list[str] = field(default_factory=list)
    """Names of tools in ``own`` for which the user chose no way to answer calls."""
    too_long: str = ""  # why all prompts exceed the model's context
    model_calls: int | None = None  # in the trials; None without a trial
    offered: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tools and forms that the model was offered in the trials, as OpenAI functions."""
    members: list[str] = field(default_factory=list)
    """Names of a team's agents that its messages may name."""
    not_called: list[str] = field(default_factory=list)
    """Names of tools that were offered, and that no trial came to call."""


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
            f"{' '.join(problems)}"
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
    made: list[Trajectory] = []
    late, problems = unseen(specs.values()), list[str]()
    wanted = specs.keys() if scenario.has_late_tools else late.keys()
    with TemporaryDirectory(prefix="agentgym-trial-") as name:
        folder = Path(name)
        notes = folder / "seen.jsonl"
        with RolloutSession(trial, policy, folder, 1, witness=notes) as session:
            for n in range(_MOST_TRIALS):
                calls.begin(has_crashed=bool(made) and has_crashed(made[-1]))
                asked = RolloutRequest(f"trial-{n}", task, True, f"trial-{n}", step=0)
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
                if has_crashed(made[-1]) and n < _MOST_CRASHES:
                    continue  # other values may do
                is_complete = not calls.left and wanted <= offered_tools(made).keys()
                if is_complete or is_lost(made[-1]) or is_unfit(made[-1]):
                    break
                if not calls.has_called:  # another attempt would be the same
                    break
            facts, lines = session.agent, seen(notes)
    for trajectory in made:
        learn_from(late, trajectory)
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
        differences=[
            d for n in offered if n in specs for d in _differ(offered[n], specs[n])
        ],
        concerns=[
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
    report = _judged(report, made, scenario, specs, allowed, lines, late)
    wrong = "" if config.yes else misspelt(scenario, late, offered)
    if wrong and not report.problems:
        report = replace(report, problems=[wrong])
    if report.problems:
        return report
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
        elif (
            adapter.addressee in properties(function.get("parameters"))
            or name in calls.passing
        ):
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
        problems=[_undecided(undecided, scenario)] if undecided else [],
    )


def _undecided(names: list[str], scenario: Scenario) -> str:
    tools = ", ".join(names)
    return (
        f"{scenario.name} has no tools named {tools}, which the agent has. Choose "
        "an answer to their calls: --tools stub answers them with made-up values, and "
        f"--allow-tool {names[0]} lets one really run, again and again. Or describe "
        "your own tasks with the agent's own tools in a file: --tasks FILE."
    )


def _rehearsed(reference: str) -> str:
    if not is_tasks_file(reference):
        return reference
    source = TaskSource.parse(reference)
    if source.answers == "live":
        source = replace(source, answers="recorded", allow=())
    return str(source)


def _judged(
    report: AgentReport,
    trials: list[Trajectory],
    scenario: Scenario,
    specs: Mapping[str, ToolSpec],
    allowed: frozenset[str],
    lines: list[Mapping[str, Any]],
    late: Mapping[str, UnseenSpec],
) -> AgentReport:
    hosts = [x["host"] for x in lines if "host" in x and not x["outside"]]
    is_outside = any(x.get("outside") for x in lines)
    hosts = list(dict.fromkeys(hosts))
    made = next((each for each in trials if is_lost(each)), trials[0])
    offered, own = report.offered, report.own
    adapter = FRAMEWORKS.get(report.framework)
    not_run = dict.fromkeys(
        call.name
        for trial in trials
        for call in trial.get_tool_calls()
        if call.name in specs and call.result == f"Error: {NOT_RUN}"
        if not adapter.runs_tools
    )
    answering = [name for name in not_run if name in allowed]
    past = [name for name in not_run if name not in allowed]
    known = {*report.bound, *own, *report.not_called}
    unknown = [name for name in offered if name not in known]
    listed = ", ".join(hosts)
    option = f"--allow-host {hosts[0]}" if hosts else ""
    reached = (
        f" It tried to reach {listed}, which a trial blocks. If the agent's own code "
        f"needs that, as a database or a file to download, let it through: {option}."
        if hosts
        else ""
    )
    unfit = not is_lost(made) and is_unfit(trials[-1])
    problems = [*report.problems]
    if problems:
        pass
    elif made.reason is not None and made.reason.kind == "interrupt":
        problems.append(
            f"In a trial it waited for a person: {made.reason.detail}. Let the "
            "scenario's user answer (Environment.user_reply), or leave the question "
            "out in training."
        )
    elif "response_format = " in str(made.reason):
        problems.append(_in_a_form(report))
    elif is_outside and made.status is RolloutStatus.DROPPED:
        problems.append(f"{_threads(report)}{reached}")
    elif made.status is RolloutStatus.DROPPED:
        problems.append(
            f"In a trial it did not finish: {_why(made)}.{_hint(made)}{reached}"
        )
    elif not offered and not scenario.judges_work:
        problems.append(
            "In a trial its model was offered no tool, so that there is nothing to "
            f"learn: bind the tools to the model.{reached}"
        )
    elif specs.keys() - late and not specs.keys() & offered and not unfit:
        problems.append(
            f"In a trial its model was offered {', '.join(offered)}, and none of the "
            f"tools of {scenario.name}: {', '.join(sorted(specs))}."
        )
    elif past:
        names = ", ".join(past)
        problems.append(
            f"Calls of {names} are answered by the agent's own code, past training. "
            "Make them tools of the framework (for LangGraph: @tool and a ToolNode, or "
            "tool.invoke in your node). Or let that code answer them, again and again "
            f"in training: --tools live --allow-tool {past[0]}.{reached}"
        )
    elif wrong := misfits(scenario, late):
        problems.append(wrong)
    concerns = [*report.concerns]
    if not problems and (never := [n for n in late if n not in offered]):
        concerns.append(_never_offered(never, offered))
    if crashed := [each for each in trials if has_crashed(each)]:
        ended = f"{len(crashed)} of {len(trials)} trials"
        concerns.append(
            f"Its own code crashed in {ended}, after a made-up answer of its model: "
            f"{crashed[-1].reason and crashed[-1].reason.detail}. In training such a "
            "crash is the model's failure. If it has another cause, mend that first."
        )
    if unknown and not adapter.runs_tools:
        concerns.append(
            f"Its model is also offered {', '.join(unknown)}, whose calls the agent's "
            "own code answers, and really runs. Tasks that expect such calls want "
            f"--tools live --allow-tool {unknown[0]}."
        )
    if answering:
        concerns.append(
            f"Calls of {', '.join(answering)} are answered by the agent's own code, "
            "which really runs, again and again; its answers are recorded."
        )
    if unfit:
        concerns.append(
            "It asks its model for any JSON object, and its own code refused one that "
            "was made up, so that the trial went no further. In training such an "
            "answer is the model's failure. Ask with a schema, as "
            "with_structured_output does by default, and every answer fits."
        )
    elif not problems and (replaced := calls_replaced(trials)):
        concerns.append(
            f"Calls of {', '.join(replaced)} that the agent's own code replaces by "
            "others are not counted as calls; those that replace them are."
        )
    if ending := calls_ending(trials):
        concerns.append(
            f"Calls of {', '.join(ending)} end the agent, and count as made. Where its "
            "own code does something at such a call, that is really done."
        )
    if hosts and not problems:
        concerns.append(
            f"In the trial it tried to reach {listed}; this was blocked. In training "
            f"it is not. {option} lets it through in the trial, too."
        )
    return replace(report, concerns=concerns, problems=problems)


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
    return re.sub(r"^crash: (Usage|Unsupported)Error: ", "", text)


def _hint(made: Trajectory) -> str:
    if "KeyError" not in str(made.reason):
        return ""
    return (
        " If a key of its state is missing, give it with --inputs module:function, a "
        "function of the task that returns a dict; one of its config's with "
        "--configurable KEY=VALUE."
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
