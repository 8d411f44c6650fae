"""ContractResult: whether an agent keeps its contract, and why; its reports."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from agentgym.core.trajectory import Trajectory
from agentgym.evaluate.intervals import UNMEASURED, Estimate
from agentgym.evaluate.metrics import Metrics, TaskResult, by_task
from agentgym.evaluate.numbers import percent, plural
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.rows import share_span
from agentgym.plugins.contract.contract import Limit
from agentgym.plugins.contract.recording import AgentChange, RecordedAnswers, changes
from agentgym.ui.evaluation import variant_rows
from agentgym.ui.reports import table

_MOST_REASON = 120


@dataclass(frozen=True)
class LimitResult:
    """A limit, and the measured share."""

    limit: Limit
    found: Estimate
    miss: str | None  # why it is not kept


@dataclass(frozen=True)
class TaskOutcome:
    """The attempts at one task."""

    task: str
    won: int
    scored: int
    dropped: int
    seconds: float
    reasons: tuple[str, ...]  # of the attempts that failed, the most frequent first
    before: tuple[int, int] | None  # recorded: successful and scored attempts
    lost: str | None  # why the task breaks the contract

    @property
    def share(self) -> float:
        """The share of scored attempts that succeeded; -1 without scored attempts."""
        return self.won / self.scored if self.scored else -1.0


@dataclass(frozen=True)
class ContractResult:
    """The result of a contract's test; it is kept if nothing is wrong.

    Attributes:
        changes: Differences from the recorded version of the agent; empty if the model
            itself answered.
    """

    name: str
    evaluation: Evaluation
    limits: Sequence[LimitResult]
    tasks: Sequence[TaskOutcome]
    changes: Sequence[AgentChange] = ()
    replayed: bool = False

    @property
    def problems(self) -> list[str]:
        """All that breaks the contract, a sentence each; empty if it is kept."""
        other = [change.sentence for change in self.changes if change.is_request]
        again = "The model would be asked something else than was recorded"
        return [
            *(f"{again}: {what}. Record again." for what in other),
            *(result.miss for result in self.limits if result.miss is not None),
            *(each.lost for each in self.tasks if each.lost is not None),
        ]


def judge(
    name: str,
    found: Evaluation,
    made: Sequence[Trajectory],
    limits: Sequence[Limit],
    recording: RecordedAnswers | None,
    *,
    replayed: bool,
) -> ContractResult:
    """Compare an evaluation and its attempts ``made`` with a contract's limits.

    A task that always held, in all recorded attempts, breaks the contract if none of
    the new attempts succeeds. In a replay, in which the model gives the same answers, a
    single failure does.
    """
    attempts = {each[0].task_id: each for each in by_task(made)}
    results = {each.task_id: each for each in found.metrics.by_task}
    held = {} if recording is None else recording.held
    return ContractResult(
        name=name,
        evaluation=found,
        limits=[_measured(limit, found, attempts) for limit in limits],
        tasks=[
            _outcome(results[task], attempts[task], held.get(task), replayed=replayed)
            for task in results
        ],
        changes=changes(recording, made) if replayed and recording is not None else (),
        replayed=replayed,
    )


def _measured(
    limit: Limit, found: Evaluation, attempts: dict[str, list[Trajectory]]
) -> LimitResult:
    metrics = found.metrics
    if limit.variant is not None:
        if limit.variant not in found.variants:
            return LimitResult(limit, UNMEASURED, f"{limit.name}: no faults were set.")
        metrics = found.variants[limit.variant]
    if limit.task is not None:
        # The interval of a single task is one over its attempts.
        alone = [
            each.model_copy(update={"task_id": f"{limit.task} {number}"})
            for number, each in enumerate(attempts[limit.task])
        ]
        scored = [each for each in alone if each.reward is not None]
        if not scored:
            said = f"Task {limit.task} was not measured."
            return LimitResult(limit, UNMEASURED, said)
        metrics = Metrics.of(scored, k=1)
    miss = limit.gate.miss(metrics)
    if miss is not None and (where := limit.task or limit.variant):
        miss = f"{where}: {miss}"
    return LimitResult(limit, metrics[limit.gate.metric], miss)


def _outcome(
    result: TaskResult,
    attempts: Sequence[Trajectory],
    before: tuple[int, int] | None,
    *,
    replayed: bool,
) -> TaskOutcome:
    failed = Counter(str(t.reason) for t in attempts if not t.success and t.reason)
    reasons = tuple(reason for reason, _ in failed.most_common())
    lost = None
    why = f": {reasons[0].rstrip('.')}" if reasons else ""
    if not result.attempts:
        lost = f"Task {result.task_id} was not measured{why}."
    elif before is not None and 0 < before[0] == before[1]:
        least = result.attempts if replayed else 1
        if result.successes < least:
            lost = (
                f"Task {result.task_id} held in all {before[1]} recorded attempts, and "
                f"now in {result.successes} of {result.attempts}{why}."
            )
    return TaskOutcome(
        task=result.task_id,
        won=result.successes,
        scored=result.attempts,
        dropped=result.dropped,
        seconds=sum(each.duration_s for each in attempts),
        reasons=reasons,
        before=before,
        lost=lost,
    )


def headline(verdict: ContractResult) -> str:
    """Return a sentence: whether the contract is kept."""
    found = verdict.evaluation.metrics
    how = "replayed, without a model" if verdict.replayed else "measured"
    size = f"{plural(found.tasks, 'task')}, {plural(found.rollouts, 'attempt')}, {how}"
    count = len(verdict.problems)
    state = "kept" if not count else f"broken, for {plural(count, 'reason')}"
    return f"The contract {verdict.name} is {state} ({size})."


def limit_rows(verdict: ContractResult) -> list[tuple[str, str, str]]:
    """Return a row per limit: its name, the measured share, the verdict."""
    return [
        (each.limit.name, share_span(each.found), "broken" if each.miss else "kept")
        for each in verdict.limits
    ]


def to_markdown(verdict: ContractResult) -> str:
    """Return the report as Markdown."""
    found = verdict.evaluation
    state = "broken" if verdict.problems else "kept"
    parts = [
        f"# Contract {verdict.name}: {state}\n",
        f"{headline(verdict)} {found.subject} on {found.scenario}.\n",
        *(f"- **{problem}**\n" for problem in verdict.problems),
        "## Limits\n",
        "The lower end of the 95 % interval, in brackets, has to reach the limit.\n",
        table(["limit", "measured", ""], limit_rows(verdict)),
        *(f"Tasks {name}: {words}.\n" for name, words in variant_rows(found)),
    ]
    if verdict.changes:
        parts += ["## Changed since the recording\n"]
        parts += [f"- {change.sentence}\n" for change in verdict.changes]
    rows = []
    for each in sorted(verdict.tasks, key=lambda task: (not task.lost, task.share)):
        dropped = f", {each.dropped} dropped" if each.dropped else ""
        before = "" if each.before is None else "{} of {}".format(*each.before)
        why = " ".join(each.reasons[0].split()) if each.reasons else ""
        why = why if len(why) <= _MOST_REASON else f"{why[:_MOST_REASON]}…"
        succeeded = f"{each.won} of {each.scored}{dropped}"
        rows.append((each.task, succeeded, before, why.replace("|", "\\|")))
    head = ["task", "succeeded", "recorded", "why attempts failed"]
    parts += ["## Tasks\n", table(head, rows, left=4)]
    parts += [*(f"{note}\n" for note in found.notes)]
    parts += [f"Measured {found.created} with agentgym {found.agentgym}.\n"]
    return "\n".join(parts)


def to_junit(verdict: ContractResult) -> str:
    """Return the report in JUnit's XML: a test case per change, limit and task."""
    cases = list(_cases(verdict))
    failures = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0"}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": verdict.name, **counts}
    )
    suite.extend(cases)
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _case(
    kind: str, name: str, failure: str | None = None, said: str = "", time: float = 0
) -> ElementTree.Element:
    about = {"classname": f"agentgym.{kind}", "name": _xml(name), "time": f"{time:.3f}"}
    case = ElementTree.Element("testcase", about)
    if failure is not None:
        found = ElementTree.SubElement(case, "failure", {"message": _xml(failure)})
        found.text = _xml(failure)
    if said:
        ElementTree.SubElement(case, "system-out").text = _xml(said)
    return case


def _xml(text: str) -> str:
    """Return a text without the control characters that XML forbids."""
    return "".join(c for c in text if c.isprintable() or c in "\t\n")


def _cases(verdict: ContractResult) -> Iterator[ElementTree.Element]:
    if verdict.replayed:
        asked = [each.sentence for each in verdict.changes if each.is_request]
        other = [each.sentence for each in verdict.changes if not each.is_request]
        failure = f"Record again: {'; '.join(asked)}" if asked else None
        name = "the agent is the recorded one"
        yield _case("recording", name, failure, "\n".join(other))
    for result in verdict.limits:
        yield _case("limits", result.limit.name, result.miss, share_span(result.found))
    for task in verdict.tasks:
        said = f"{task.won} of {task.scored} attempts succeeded"
        if task.scored:
            said += f" ({percent(task.share)})"
        lines = "\n".join([said, *task.reasons])
        yield _case("tasks", task.task, task.lost, lines, task.seconds)
