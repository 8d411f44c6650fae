"""What a run tells arrives elsewhere as it was told, and questions are asked there."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.evaluate import events
from agentgym.plugins.cloud.progress_lines import ProgressWriter, replay_progress
from tests.observers import Seen
from tests.ui import made_up

PLAN = events.Plan(
    config=TrainingConfig(episodes=64),
    run=Path("/there/runs/x"),
    model="nano",
    device="CPU",
    sandbox="bubblewrap",
    workers=2,
    steps=4,
    held_out=8,
    validations=1,
)
REPORT = made_up.step(1)
METRICS = made_up.metrics(0.5)


EVENTS = (
    PLAN,
    events.Message("vLLM starts."),
    events.PhaseStarted("before", 8),
    events.RolloutDone(),
    events.BaselineMeasured(METRICS),
    events.TimeLeft(2.0),
    events.WarmStartDone("8 calls", METRICS),
    REPORT,
    events.Validated(1, METRICS, True),
    events.Warned("it is slow"),
    events.Stalled("the disk is full"),
    events.Ended("budget spent", Ledger()),
    events.Finished(("It helped.",)),
)


def lines(folder: Path) -> str:
    return (folder / "progress.jsonl").read_text()


def no_reply(number: int, value: Any) -> None:
    raise AssertionError(number)


def test_all_that_is_told_arrives(tmp_path: Path) -> None:
    writer, seen = ProgressWriter(tmp_path), Seen()
    for event in EVENTS:
        writer(event)
    assert replay_progress(lines(tmp_path), seen, lambda plan: plan, no_reply)
    assert tuple(seen.events) == EVENTS


def test_the_plan_is_that_of_home(tmp_path: Path) -> None:
    ProgressWriter(tmp_path)(PLAN)
    seen, here = Seen(), Path("runs/x")
    made = replay_progress(
        lines(tmp_path), seen, lambda plan: replace(plan, run=here), no_reply
    )
    assert not made  # nothing to fetch
    assert seen.events == [replace(PLAN, run=here)]


def test_a_question_is_asked_at_home_and_once(tmp_path: Path) -> None:
    writer, answers = ProgressWriter(tmp_path), list[Any]()

    def ask() -> None:
        answers.append(writer(events.Question("train", ("it is hard",), "Train?")))
        answers.append(
            writer(events.Question("warm start", ("it would help",), "Do it?"))
        )

    def answer(event: events.Event) -> bool | None:
        assert isinstance(event, events.Question)
        return True if event.about == "train" else None

    asking = threading.Thread(target=ask)
    asking.start()
    offset = 0

    def reply(number: int, value: Any) -> None:
        new = tmp_path / "new"
        new.write_text({True: "true", None: "null"}[value])
        new.rename(tmp_path / f"reply-{number}.json")

    while asking.is_alive():
        found = lines(tmp_path)[offset:]
        found = found[: found.rfind("\n") + 1]
        offset += len(found)
        replay_progress(found, answer, lambda plan: plan, reply)
    assert answers == [True, None]
    later = Seen()  # somebody who comes later is not asked again
    replay_progress(lines(tmp_path), later, lambda plan: plan, no_reply)
    assert later.events == []
