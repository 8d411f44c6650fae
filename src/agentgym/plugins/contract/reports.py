"""Reports of a contract's test: Markdown, and JUnit's XML for CI systems."""

from collections.abc import Iterator
from xml.etree import ElementTree

from agentgym.evaluate.numbers import percent, plural
from agentgym.plugins.contract.verdict import ContractResult, TaskOutcome
from agentgym.ui.evaluation import variant_rows
from agentgym.ui.reports import table

_MOST_REASON = 120


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
        (each.limit.name, each.words, "broken" if each.miss else "kept")
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
    rows = [
        (each.task, _share(each), _before(each), _reason(each).replace("|", "\\|"))
        for each in sorted(verdict.tasks, key=lambda t: (not t.lost, _rate(t)))
    ]
    head = ["task", "succeeded", "recorded", "why attempts failed"]
    parts += ["## Tasks\n", table(head, rows, left=4)]
    parts += [*(f"{note}\n" for note in found.notes)]
    parts += [f"Measured {found.created} with agentgym {found.agentgym}.\n"]
    return "\n".join(parts)


def _rate(task: TaskOutcome) -> float:
    return task.won / task.scored if task.scored else -1.0


def _share(task: TaskOutcome) -> str:
    dropped = f", {task.dropped} dropped" if task.dropped else ""
    return f"{task.won} of {task.scored}{dropped}"


def _before(task: TaskOutcome) -> str:
    return "" if task.before is None else f"{task.before[0]} of {task.before[1]}"


def _reason(task: TaskOutcome) -> str:
    text = " ".join(task.reasons[0].split()) if task.reasons else ""
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


def to_junit(verdict: ContractResult) -> str:
    """Return the report in JUnit's XML: a test case per change, limit and task."""
    cases = [*_changed(verdict), *_limits(verdict), *_tasks(verdict)]
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


def _changed(verdict: ContractResult) -> Iterator[ElementTree.Element]:
    if verdict.replayed:
        asked = [each.sentence for each in verdict.changes if each.is_request]
        other = [each.sentence for each in verdict.changes if not each.is_request]
        failure = f"Record again: {'; '.join(asked)}" if asked else None
        yield _case(
            "recording", "the agent is the recorded one", failure, "\n".join(other)
        )


def _limits(verdict: ContractResult) -> Iterator[ElementTree.Element]:
    for each in verdict.limits:
        yield _case("limits", each.limit.name, each.miss, each.words)


def _tasks(verdict: ContractResult) -> Iterator[ElementTree.Element]:
    for each in verdict.tasks:
        said = f"{_share(each)} attempts succeeded"
        if each.scored:
            said += f" ({percent(_rate(each))})"
        lines = [said, *each.reasons]
        yield _case("tasks", each.task, each.lost, "\n".join(lines), each.seconds)
