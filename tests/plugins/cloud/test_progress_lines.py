"""What a run tells arrives at home as it was told, and questions are asked there."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger
from agentgym.evaluate.progress import Plan, Progress
from agentgym.plugins.cloud.progress_lines import (
    ProgressWriter,
    replay_progress,
)
from tests.ui import made_up

PLAN = Plan(
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


class Seen(Progress):
    """Notes each call; answers what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "calls":
            return super().__getattribute__(name)

        def note(*args: Any) -> Any:
            self.calls.append((name, args))
            return {"allows": True, "wants_warm_start": None}.get(name)

        return note


def tell_all(progress: Progress) -> None:
    progress.planned(PLAN)
    progress.starting("vLLM starts.")
    progress.fitted("In 30 min: 24 held-out tasks.")
    progress.phase("before", 8)
    progress.rollout_done()
    progress.baseline(METRICS)
    progress.forecast(1.0, 2.0)
    progress.warmed("8 calls", METRICS)
    progress.stepped(REPORT)
    progress.validated(1, METRICS, True)
    progress.warned(["it is slow"])
    progress.stalled("the disk is full")
    progress.stalled(None)
    progress.ended("budget spent", Ledger())


def lines(folder: Path) -> bytes:
    return (folder / "progress.jsonl").read_bytes()


def no_reply(number: int, value: Any) -> None:
    raise AssertionError(number)


def test_all_that_is_told_arrives(tmp_path: Path) -> None:
    tell_all(ProgressWriter(tmp_path))
    seen, expected = Seen(), Seen()
    assert replay_progress(lines(tmp_path), seen, lambda plan: plan, no_reply)
    tell_all(expected)
    assert seen.calls == expected.calls


def test_nothing_that_a_run_can_tell_is_forgotten() -> None:
    said = {name for name in vars(Progress) if not name.startswith("_")}
    said -= {"may_rent", "may_spend"}  # asked before anything is sent there
    assert said == {name for name in vars(ProgressWriter) if not name.startswith("_")}


def test_the_plan_is_that_of_home(tmp_path: Path) -> None:
    ProgressWriter(tmp_path).planned(PLAN)
    seen, here = Seen(), Path("runs/x")
    made = replay_progress(
        lines(tmp_path), seen, lambda plan: replace(plan, run=here), no_reply
    )
    assert not made  # nothing to fetch
    [(_, (plan,))] = seen.calls
    assert plan == replace(PLAN, run=here)


def test_a_question_is_asked_at_home_and_once(tmp_path: Path) -> None:
    told, answers = ProgressWriter(tmp_path), list[Any]()

    def ask() -> None:
        answers.append(told.allows(["it is hard"]))
        answers.append(told.wants_warm_start("it would help"))

    asking = threading.Thread(target=ask)
    asking.start()
    offset = 0

    def reply(number: int, value: Any) -> None:
        new = tmp_path / "new"
        new.write_text({True: "true", None: "null"}[value])
        new.rename(tmp_path / f"reply-{number}.json")

    while asking.is_alive():
        found = lines(tmp_path)[offset:]
        found = found[: found.rfind(b"\n") + 1]
        offset += len(found)
        replay_progress(found, Seen(), lambda plan: plan, reply)
    assert answers == [True, None]
    later = Seen()  # somebody who comes later is not asked again
    replay_progress(lines(tmp_path), later, lambda plan: plan, no_reply)
    assert later.calls == []
