"""OpenedRun: read a run for the viewer, with an index of its rollouts."""

import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from agentgym.core.config import TrainingConfig
from agentgym.core.needs import Needs
from agentgym.core.task import EVERY_SPLIT, Task
from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.errors import AgentGymError, NotFoundError, message_of
from agentgym.evaluate.call_classes import CallClass, JudgedCall, judge_calls
from agentgym.evaluate.compare import Change, Effect
from agentgym.evaluate.evaluation import judge as judge_all
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import METRICS, Metrics
from agentgym.evaluate.rows import changes_words, p_words, share_span, verdict_words
from agentgym.models.nano import nano_path
from agentgym.plugins.doctor.run import Evidence, diagnose, read_evidence, read_result
from agentgym.plugins.view.rollout_index import RolloutIndex
from agentgym.rollout.record import read_task, stored_rollout
from agentgym.rollout.store.reader import StoreReader
from agentgym.rollout.store.records import FINAL_STATES, FIRST_ATTEMPT, Rollout
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.packs import is_tasks_file, shown_name
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import needs_of
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import CREDIT_FILE, RunFolder
from agentgym.train.status import UNREADABLE, machine_of, run_status

# For each class of tool calls, the sentence that the page shows.
WORDS = {
    CallClass.INVENTED_TOOL: "This tool does not exist.",
    CallClass.MALFORMED: "The call could not be read.",
    CallClass.MISSING: "A required argument is missing.",
    CallClass.EXTRA: "It has an argument that the tool does not know.",
    CallClass.WRONG_TYPE: "An argument has the wrong type.",
    CallClass.RULE_BROKEN: "A rule forbids this call.",
    CallClass.OWN: "A tool of the agent's own.",
    CallClass.RIGHT: "Right.",
    CallClass.WRONG_VALUE: "The tool is right; an argument has the wrong value.",
    CallClass.FAULT: "It met an injected fault.",
    CallClass.RAISED: "The tool refused it.",
    CallClass.REPEATED: "It repeats an earlier call.",
    CallClass.WRONG_TOOL: "Another tool was needed.",
    CallClass.UNNEEDED: "The task does not need it.",
    CallClass.UNJUDGED: "The needed calls of this task are not known.",
}
_HARMLESS = {CallClass.OWN, CallClass.RIGHT, CallClass.UNJUDGED, CallClass.FAULT}
_NEEDLESS = {CallClass.REPEATED, CallClass.UNNEEDED}
STOPPED = "The agent stopped before it made this call."


class CallJudge:
    """Compares rollouts' tool calls with those that the scenario needs."""

    def __init__(self, reference: str) -> None:
        self._scenario: Scenario | None = None
        self.problem = ""
        try:
            self._scenario = get_scenario(reference)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of the user's
            self.problem = (
                f"The scenario {reference} could not be loaded, so the needed calls "
                f"are not known: {message_of(error)}"
            )

    def judge(self, rollout_input: Any, trajectory: Trajectory) -> dict[str, Any]:
        """Return each call's class (right, or its fault) and the first wrong call.

        If the needed calls are not known, ``problem`` says why.
        """
        problem, needs = self.problem, Needs({}, {})
        if self._scenario is not None:
            try:
                needs = needs_of(self._scenario, [read_task(rollout_input)])
            except Exception as error:  # noqa: BLE001 - code of the user's
                problem = (
                    f"The scenario did not list the needed calls: {message_of(error)}"
                )
        task = trajectory.task_id
        needed = needs.by_task.get(task)
        if needed is None and not problem:
            problem = "The scenario does not list the needed calls of this task."
        judged = judge_calls(trajectory, needed, needs.specs_of(task))
        plan = [
            {
                "tool": need.tool,
                "arguments": dict(need.arguments),
                "others": [dict(other) for other in need.others],
                "by_outcome": sorted(need.by_outcome),
                "instead": [
                    {"tool": each.tool, "arguments": dict(each.arguments)}
                    for each in need.instead
                ],
            }
            for need in needed or ()
        ]
        return {
            "classes": [
                {"kind": call.kind, "words": WORDS[call.kind], "needed": call.needed}
                for call in judged
            ],
            "needed": None if needed is None else plan,
            "problem": problem,
            "first_wrong": _first_wrong(judged, len(plan), bool(trajectory.success)),
        }

    def confusion(
        self, tasks: Sequence[Task], trajectories: Sequence[Trajectory]
    ) -> dict[str, Any]:
        """Return how often each tool was called when a given tool was needed."""
        empty: dict[str, Any] = {"rollouts": len(trajectories), "matrix": None}
        if self._scenario is None:
            return empty | {"problem": self.problem}
        try:
            _, matrix = judge_all(self._scenario, tasks, trajectories)
        except Exception as error:  # noqa: BLE001 - code of the user's
            return empty | {"problem": message_of(error)}
        if matrix is None:
            return empty | {"problem": "The needed calls of these tasks are not known."}
        return empty | {"problem": "", "matrix": matrix}


def _first_wrong(
    judged: Sequence[JudgedCall], needed: int, succeeded: bool
) -> dict[str, Any] | None:
    """Return the indices of the first wrong call, and of the needed call instead.

    Without a wrong call, it is the first repeated or unneeded call; None if the agent
    stopped too early. Return None if nothing was wrong.
    """
    places = [n for n, call in enumerate(judged) if _is_wrong(call)]
    if not places and not succeeded:
        places = [n for n, call in enumerate(judged) if call.kind in _NEEDLESS]
    if places:
        place = places[0]
        wanted = judged[place].needed
        if wanted is None:
            wanted = _next_needed(judged[:place], needed)
        kind = judged[place].kind
        words = WORDS[CallClass.RAISED if kind in _HARMLESS else kind]
        return {"call": place, "needed": wanted, "words": words}
    missing = _next_needed(judged, needed)
    if succeeded or missing is None:
        return None
    return {"call": None, "needed": missing, "words": STOPPED}


def _is_wrong(call: JudgedCall) -> bool:
    """Return whether a call failed or was wrong; repeated or unneeded is not wrong."""
    if call.call.failed:
        return True
    return call.kind not in _HARMLESS | _NEEDLESS


def _next_needed(before: Sequence[JudgedCall], needed: int) -> int | None:
    """Return the index of the first needed call that was not made; None if all were."""
    done = {call.needed for call in before if call.kind is CallClass.RIGHT}
    return next((place for place in range(needed) if place not in done), None)


def rollout_page(
    rollout: Rollout, trajectory: Trajectory, judge: CallJudge
) -> dict[str, Any]:
    """Return a rollout's task, steps and reward, and a judgement of each tool call."""
    task = read_task(rollout.input)
    judged = judge.judge(rollout.input, trajectory)
    has_ended = rollout.status.state in FINAL_STATES
    last = rollout.status.last_attempt_id or FIRST_ATTEMPT
    return {
        "id": rollout.rollout_id,
        "has_ended": has_ended,
        "outcome": trajectory.status if has_ended else "unfinished",
        "reason": trajectory.reason if has_ended else None,
        "attempt": int(last) if last.isdecimal() else 0,
        "created_at": rollout.status.created_at,
        "duration_s": trajectory.duration_s,
        "group": trajectory.group,
        "step": rollout.metadata.get("step"),
        "is_train": rollout.is_train,
        "task": task.model_dump(mode="json"),
        "reward": trajectory.reward,
        "reward_parts": trajectory.reward_parts,
        "right_tool": trajectory.right_tool,
        "right_arguments": trajectory.right_arguments,
        "steps": _steps(trajectory),
        "tools": _tools(trajectory),
        "judgement": judged,
        "graph": speaker_graph([([c.agent for c in trajectory.model_calls], 1)]),
        "changed_files": trajectory.changed_files,
        "end_state": trajectory.end_state,
        "task_line": task_line(trajectory, task.model_dump(mode="json"), judged),
    }


def speaker_graph(
    conversations: Iterable[tuple[Sequence[str], int]],
) -> dict[str, Any]:
    """Return a team's roles, and how often each made a model call after another."""
    roles, turns, rollouts = Counter[str](), Counter[tuple[str, str]](), 0
    for speakers, times in conversations:
        rollouts += times
        for role in speakers:
            roles[role] += times
        for pair in pairwise(speakers):
            turns[pair] += times
    return {
        "rollouts": rollouts,
        "roles": roles,
        "turns": [
            {"from": before, "to": after, "count": count}
            for (before, after), count in turns.most_common()
        ],
    }


def task_line(
    trajectory: Trajectory, task: Mapping[str, Any], judged: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the task as a tasks file's line, with needed calls or these."""
    made = [call for call in trajectory.get_tool_calls() if call.outcome == "ok"]
    needed = [
        {"tool": need["tool"], "args": need["arguments"]}
        for need in judged["needed"] or ()
    ] or [{"tool": call.name, "args": call.arguments or {}} for call in made]
    for call in needed:
        answers = (
            each.result
            for each in made
            if (each.name, each.arguments) == (call["tool"], call["args"])
        )
        if (answer := next(answers, None)) is not None:
            call["answer"] = answer
    return {"instruction": task["instruction"], "expect": needed}


def _steps(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return the steps in order; each message is in only one of them."""
    found: list[dict[str, Any]] = []
    results = {call.id for call in trajectory.get_tool_calls() if call.id}
    for step, messages in trajectory.new_messages():
        if isinstance(step, ModelCall):
            new = [
                message
                for message in messages
                if message.get("role") != "assistant"
                and message.get("tool_call_id") not in results
            ]
            found.append(_model_call(step, new))
        else:
            found.append(step.model_dump(mode="json"))
    return found


def _model_call(call: ModelCall, messages: list[dict[str, Any]]) -> dict[str, Any]:
    prompt_tokens, response_tokens = call.token_counts or (None, None)
    return {
        "type": "model_call",
        "agent": call.agent,
        "messages": messages,
        "content": call.content,
        "tool_calls": [each.model_dump() for each in call.tool_calls],
        "finish_reason": call.finish_reason,
        "model_version": call.model_version,
        "latency_ms": call.latency_ms,
        "prompt_tokens": prompt_tokens,
        "response_tokens": response_tokens,
        "has_tokens": bool(call.response_ids),
    }


def _tools(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Return names and descriptions of the offered tools."""
    offered = next((call.tools for call in trajectory.model_calls if call.tools), [])
    functions = (tool.get("function") or {} for tool in offered)
    return [
        {"name": each.get("name"), "description": each.get("description")}
        for each in functions
    ]


_TOKENIZER = "tokenizer.json"
_MEASURED = "This rollout is a measurement, which is not trained on."
_NO_FILE = f"This run has no {CREDIT_FILE}, which a training step writes."
_NO_LINE = "No training step has used this rollout (yet)."


def token_texts(
    run: RunFolder, trajectory: Trajectory, *, is_train: bool
) -> dict[str, Any]:
    """Return the tokens of each model call of a rollout.

    ``gaps`` are the learner's log-probabilities minus those at sampling, or None.
    """
    tokenizer, problem = _tokenizer(run)
    credit = read_credit(run.path / CREDIT_FILE, trajectory.rollout_id)
    calls = trajectory.model_calls
    path = run.path / CREDIT_FILE
    missing = (_NO_LINE if path.exists() else _NO_FILE) if is_train else _MEASURED
    known = credit if len(credit) == len(calls) else [{}] * len(calls)
    return {
        "problem": problem,
        "credit": "" if credit else missing,
        "calls": [
            _call(tokenizer, call, earned)
            for call, earned in zip(calls, known, strict=True)
        ],
    }


def read_credit(path: Path, rollout_id: str) -> list[dict[str, Any]]:
    """Return each model call's record in ``credit.jsonl``; [] if there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    start = data.rfind(b'{"rollout": ' + orjson.dumps(rollout_id) + b",")
    end = data.find(b"\n", start)
    if start < 0 or end < 0:
        return []
    calls: list[dict[str, Any]] = orjson.loads(data[start:end])["calls"]
    return calls


def _call(tokenizer: Any, call: ModelCall, earned: dict[str, Any]) -> dict[str, Any]:
    ids = call.response_ids
    texts = [f"[{token}]" for token in ids]
    if tokenizer is not None:
        texts = [tokenizer.decode([each], skip_special_tokens=False) for each in ids]
    trained = [False] * len(ids)
    for start, end in earned.get("spans", ()):
        trained[start:end] = [True] * (end - start)
    places = [place for place, is_trained in enumerate(trained) if is_trained]
    gaps: list[float | None] = [None] * len(ids)
    if (known := earned.get("gaps")) is not None:
        for place, gap in zip(places, known or [0.0] * len(places), strict=False):
            gaps[place] = gap
    return {
        "texts": texts,
        "logprobs": call.logprobs,
        "trained": trained,
        "gaps": gaps,
        "bucket": earned.get("bucket"),
        "reason": earned.get("reason"),
        "advantage": earned.get("advantage"),
    }


def _tokenizer(run: RunFolder) -> tuple[Any, str]:
    """Return the run's tokenizer and "", or None and the reason."""
    try:
        from tokenizers import Tokenizer  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None, "Install agentgym-sdk[local] to see tokens as text."
    model = str(run.config().model)
    folders = [run.path / "agent" / "model", *reversed(run.checkpoints())]
    folders += [nano_path()] if model == "nano" else [Path(model).expanduser()]
    for folder in folders:
        for path in (folder / _TOKENIZER, folder / "model" / _TOKENIZER):
            if path.is_file():
                return Tokenizer.from_file(str(path)), ""
    return None, "The model's tokenizer is not in the run's folder."


# Placeholder in the command, which the user replaces by a model's name.
MODEL = "MODEL"


def replay_command(config: Mapping[str, Any], task: Mapping[str, Any]) -> str:
    """Return the command with which another model attempts a task of a run.

    Run it in the folder in which the run was started, so that an own agent's module is
    found.
    """
    settings, scenario = TrainingConfig.flat(config), str(config.get("scenario"))
    is_file = is_tasks_file(scenario)
    split = EVERY_SPLIT if is_file else task["split"]
    which = ["--task", task["id"], "--split", split, "--seed", str(task["seed"])]
    if settings.get("agent.reference") is None:
        where = ["--tasks", scenario] if is_file else [scenario]
        words = ["rollout", *where, *(which[:2] if is_file else which)]
    else:
        words = ["eval", scenario, *which, *_agent_options(settings, is_file=is_file)]
        words += ["--samples", "1", "--no-baselines"]
    return shlex.join(["agentgym", *words, "--model", MODEL])


def _agent_options(settings: Mapping[str, Any], *, is_file: bool) -> list[str]:
    """Return the options that select a user's own agent, as in the run."""
    words = ["--agent", str(settings["agent.reference"])]
    for name in ("framework", "agent.context", "agent.inputs"):
        if value := settings.get(name):
            words += [f"--{name.removeprefix('agent.')}", str(value)]
    for key, value in (settings.get("agent.configurable") or {}).items():
        words += ["--configurable", f"{key}={value}"]
    if not is_file:
        if tools := settings.get("agent.own_tools"):
            words += ["--tools", str(tools)]
        for name in settings.get("agent.allow_tools") or ():
            words += ["--allow-tool", str(name)]
    return words


_CURVES = (
    *("step", "episodes", "reward", "success_rate", "right_tool", "right_arguments"),
    *("tool_reliability", "entropy", "kl", "loss", "grad_norm", "clip_fraction"),
    *("logprob_gap", "ratio_p99", "sampled_tokens", "tokens_per_second", "dropped"),
    *("skipped_groups", "forgetting_kl"),
)


def run_row(run: RunFolder) -> dict[str, Any]:
    """Return a run's row in the list of runs; ``problem`` names unreadable files."""
    try:
        result, problem = read_result(run)
        row = _row(run, result, None if result is None else result.effect)
    except AgentGymError as error:
        return {"name": run.path.name, "status": UNREADABLE, "problem": str(error)}
    return row | {"problem": f"{row['problem']} {problem}".strip()}


def _row(
    run: RunFolder, result: TrainingResult | None, effect: Effect | None
) -> dict[str, Any]:
    record = run.record()
    config = record["config"]
    row = {
        "name": run.path.name,
        "status": run_status(run.path, record),
        "problem": str(record.get("error", "")),
        "scenario": shown_name(str(config.get("scenario", ""))),
        "framework": config.get("framework"),
        "model": config.get("model"),
        "created": record.get("created"),
        "updated": record.get("updated"),
        "machine": machine_of(run.path),
    }
    if result is None:
        return row
    return row | {
        "stopped": result.stopped,
        "steps": result.steps,
        "episodes": result.episodes,
        "wall_seconds": result.wall_seconds,
        "before": _shares(result.baseline),
        "after": _shares(result.metrics),
        "verdict": None if effect is None else effect.verdict,
    }


def run_page(run: RunFolder) -> dict[str, Any]:
    """Return the data of a run's page: curves, measurements, findings and ledger."""
    evidence = read_evidence(run)
    result = evidence.result
    ledger = evidence.ledger if result is None else result.ledger
    return {
        **_row(run, result, evidence.effect),
        "config": TrainingConfig.flat(evidence.config),
        "curves": {n: [s.get(n) for s in evidence.steps] for n in _CURVES},
        "validations": _validations(evidence.steps),
        "ledger": ledger.model_dump(mode="json") | {"adds_up": ledger.adds_up},
        "findings": [asdict(finding) for finding in diagnose(evidence)],
        "effect": _effect(evidence.effect, result),
        "weights_step": None if result is None else result.weights_step,
        "sets": _sets(evidence),
        "families": _families(evidence),
    }


def _validations(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = [step for step in steps if step.get("validation")]
    return [
        {"step": step["step"], **{n: step["validation"].get(n) for n in METRICS}}
        for step in measured
    ]


def _effect(
    effect: Effect | None, result: TrainingResult | None
) -> dict[str, Any] | None:
    """Return the sentences on the effect of training that the terminal shows, too."""
    if effect is None:
        return None
    better, worse = changes_words(effect)
    parts = [] if result is None else result.gain_words
    return {
        "words": verdict_words(effect, has_warm_start=bool(parts)),
        "parts": parts,
        "better": better,
        "worse": worse,
        "is_worse": bool(effect.worse),
    }


def _sets(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the held-out sets with their metrics before and after training."""
    result = evidence.result
    if result is None:
        before = evidence.baseline
        if before is None:
            return []
        return [{"name": "held-out", "before": _shares(before), "after": None}]
    sets = {"held-out": (result.baseline, result.metrics), **result.breakdown}
    warm = {"held-out": result.warm_start, **result.warm_breakdown}
    found = []
    for name, (before, after) in sets.items():
        measured = {"before": before, "warm": warm.get(name), "after": after}
        k = min(each.k for each in measured.values() if each)
        shares = {
            at: each and _shares(each.at_most(k)) for at, each in measured.items()
        }
        found.append({"name": name, "tasks": after.tasks, **shares})
    return found


def _change(change: Change) -> str:
    """Describe a change beyond chance, e.g. ``"worse, p = 0.0012"``."""
    word = "better" if change.after > change.before else "worse"
    return f"{word}, {p_words(change.p_value)}"


def _families(evidence: Evidence) -> list[dict[str, Any]]:
    """Return each family's success before and after, the worst change first."""
    result = evidence.result
    before = evidence.baseline if result is None else result.baseline
    if before is None:
        return []
    after = None if result is None else result.metrics
    old = before.family_success()
    new = {} if after is None else after.family_success()
    effect = evidence.effect
    real = (*effect.better, *effect.worse) if effect else ()
    changes = {change.name: _change(change) for change in real if change.is_family}
    rows = [
        {
            "name": name,
            "before": _estimate(found),
            "after": _estimate(new[name]) if name in new else None,
            "change": changes.get(name, ""),
        }
        for name, found in old.items()
    ]
    return sorted(
        rows,
        key=lambda row: (
            (row["after"] or row["before"])["value"] - row["before"]["value"]
        ),
    )


def _estimate(found: Estimate) -> dict[str, Any]:
    return found.model_dump() | {"text": share_span(found)}


def _shares(metrics: Metrics) -> dict[str, Any]:
    found: dict[str, Any] = {name: _estimate(metrics[name]) for name in METRICS}
    sizes = {"tasks": metrics.tasks, "rollouts": metrics.rollouts, "k": metrics.k}
    return {**found, **sizes, "dropped": metrics.dropped}


# Files whose change is one of a run's steps, or of its rollouts.
_FILES = {
    "steps": ("run.json", "metrics.jsonl", "result.json"),
    "rollouts": ("rollouts.db", "rollouts.db-wal", CREDIT_FILE),
}
_READ_S = 0.15  # most time that a request reads new rollouts
_WHOLE_S = 600.0
_NO_STORE = (
    "does not exist. It is made when the run's first rollout begins; until then there "
    "are no rollouts to show."
)
_MOST_JUDGED = 1000
_SIBLINGS = 64
_RELATED = 200


class OpenedRun:
    """A run that the viewer shows, with an index of its rollouts. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self._store = StoreReader(run.path / "rollouts.db")
        self._index = RolloutIndex(self._store)
        self._confusions: dict[Any, Any] = {}

    def cursor(self) -> dict[str, str]:
        """Return hashes that change with the run's steps and with its rollouts."""
        return {what: files_hash(self.run, names) for what, names in _FILES.items()}

    def page(self) -> dict[str, Any]:
        """Return the data of the run's page: curves, measurements and problems."""
        cursor = self.cursor()
        return run_page(self.run) | {"cursor": cursor}

    def rollouts(
        self, filters: Mapping[str, str], sort: str, offset: int, limit: int
    ) -> dict[str, Any]:
        """Return some rollouts and their total; see :meth:`RolloutIndex.find`."""
        cursor = self.cursor()
        is_loading = self._read_new()
        found = self._index.find(filters, sort=sort, offset=offset, limit=limit)
        note = "" if self._store.exists else f"{self._store.path} {_NO_STORE}"
        return found | {"is_loading": is_loading, "note": note, "cursor": cursor}

    def graph(self, filters: Mapping[str, str]) -> dict[str, Any]:
        """Return how often each role spoke after another, in scored rollouts."""
        is_loading = self._read_new()
        found = speaker_graph(self._index.speakers(filters))
        return found | {"is_loading": is_loading}

    def facets(self) -> dict[str, Any]:
        """Return each filter's values, and the number of rollouts with each value."""
        is_loading = self._read_new()
        return self._index.facets() | {"is_loading": is_loading}

    def curves(self, by: str) -> dict[str, Any]:
        """Return metrics by step and ``by``; see :meth:`RolloutIndex.curves`."""
        is_loading = self._read_new()
        return {"rows": self._index.curves(by), "is_loading": is_loading}

    def rollout(self, rollout_id: str) -> dict[str, Any]:
        """Return the data of a rollout's page, with other attempts at its task."""
        page = rollout_page(*self._read(rollout_id), self._judge)
        self._read_new()
        group, task = page["group"], page["task"]["id"]
        siblings = self._index.find(
            {"task_group": group}, sort="rollout_id", limit=_SIBLINGS
        )
        related = self._index.find({"task_id": task}, sort="step", limit=_RELATED)
        return page | {
            "siblings": siblings["rows"],
            "next_failed": self._index.next_failed(rollout_id),
            "same_task": related["rows"],
            "team": speaker_graph(self._index.speakers({"task_id": task})),
            "replay": replay_command(self.run.record()["config"], page["task"]),
        }

    def tokens(self, rollout_id: str) -> dict[str, Any]:
        """Return a rollout's sampled tokens, and whether each of them was trained."""
        rollout, trajectory = self._read(rollout_id)
        return token_texts(self.run, trajectory, is_train=rollout.is_train)

    def _read(self, rollout_id: str) -> tuple[Rollout, Trajectory]:
        found = stored_rollout(self._store, rollout_id)
        if found is None:
            raise NotFoundError("rollout", rollout_id, [])
        return found

    def confusion(self, phase: str) -> dict[str, Any]:
        """Return the confusion matrix of called and needed tools in one ``phase``."""
        key = phase, *self.cursor().values()
        if key not in self._confusions:
            self._confusions = {key: self._confuse(phase)}
        found: dict[str, Any] = self._confusions[key]
        return found

    def _confuse(self, phase: str) -> dict[str, Any]:
        self._read_new(_WHOLE_S)
        rows = self._index.find({"phase": phase}, limit=_MOST_JUDGED)["rows"]
        stored = [stored_rollout(self._store, row["rollout_id"]) for row in rows]
        made = [found for found in stored if found is not None]
        tasks = {task.id: task for task in (read_task(r.input) for r, _ in made)}
        return self._judge.confusion(list(tasks.values()), [t for _, t in made])

    @cached_property
    def _judge(self) -> CallJudge:
        return CallJudge(str(self.run.record()["config"].get("scenario")))

    def _read_new(self, seconds: float = _READ_S) -> bool:
        """Read new rollouts for some time; return whether there are more."""
        return self._store.exists and self._index.update(seconds)


def files_hash(run: RunFolder, names: Iterable[str]) -> str:
    """Return a short hash of the sizes and modification times of a run's files."""
    found = []
    for name in names:
        with suppress(OSError):
            status = (run.path / name).stat()
            found.append((name, status.st_size, status.st_mtime_ns))
    return f"{zlib.crc32(repr(found).encode()):08x}"
