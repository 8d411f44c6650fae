"""Tables and the report: true, complete, and readable in 60 columns."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from rich.text import Text

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.compare import measure_effect
from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.evaluate.plain_progress import line_of
from agentgym.evaluate.rows import ledger_spans, rows, verdict_words
from agentgym.plugins.view.report import render_report
from agentgym.train.run_folder import RunFolder, metrics_line
from agentgym.ui.run import result_view, run_view, success_chart, verdict_view
from agentgym.ui.tables import plan_view
from tests.evaluate.test_compare import measured
from tests.ui import made_up

RUN = Path("runs/coding")


def shown(view: RenderableType, width: int = 100) -> str:
    """Return what a terminal of ``width`` columns shows."""
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(view)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 120])
def test_result_fits_any_width(width: int) -> None:
    text = shown(result_view(made_up.result().shown, RUN), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    row = next(line for line in lines if "tool reliability" in line)
    assert "52 % [48, 56]" in row
    assert "97 % [94, 100]" in row
    assert "+45" in row


def test_a_dropped_rollout_is_no_gain() -> None:
    """One less on one side: both sides show the pass^k that both can."""

    def measured(dropped: int) -> Metrics:
        tasks = [
            TaskResult(
                task_id=f"t{n}", attempts=4, successes=3, sums={"pass_1": (3, 4)}
            )
            for n in range(20 - dropped)
        ]
        if dropped:
            cut = {"attempts": 3, "successes": 2, "sums": {"pass_1": (2, 3)}}
            tasks.append(TaskResult(task_id="t19", dropped=1, **cut))
        return Metrics.of_tasks(tasks)

    before, after = measured(0), measured(1)
    assert (before.k, after.k) == (4, 3)
    for first, second, gain in ((before, after, "-1"), (after, before, "+1")):
        found = {row.label: row for row in rows(first, second)}
        assert "pass^4" not in found
        assert found["pass^3"].gain == f"{gain} points"
        assert "25 %" in f"{found['pass^3'].before} {found['pass^3'].after}"


def test_only_clear_differences_are_called_better_or_worse() -> None:
    def clear(before: Metrics, after: Metrics) -> dict[str, int]:
        return {row.label: row.clear for row in rows(before, after)}

    better = clear(made_up.metrics(0.5), made_up.metrics(0.9))
    assert better["pass^1"] == better["reward"] == better["sampled tokens"] == 1
    worse = clear(made_up.metrics(0.9), made_up.metrics(0.5))
    assert worse["pass^1"] == worse["sampled tokens"] == -1
    same = clear(made_up.metrics(0.50), made_up.metrics(0.52))
    assert set(same.values()) == {0}


def test_ledger_shows_reasons_and_whether_it_adds_up() -> None:
    text = shown(Text.assemble(*ledger_spans(made_up.ledger())))
    assert "10,000 model calls: 9,000 trained, 800 masked, 200 dropped" in text
    assert "masked, zero_variance: 800; dropped, timeout: 200" in text
    assert "add up" not in text
    gap = made_up.ledger(calls=11, trained=10)
    assert "does not add up" in shown(Text.assemble(*ledger_spans(gap)))


def test_plan_says_what_will_be_done() -> None:
    text = shown(plan_view(made_up.plan(agent="my.module:make", early_stop=False)), 60)
    for part in ("my.module:make", "1,792 rollouts in 16 steps", "bubblewrap"):
        assert part in " ".join(text.split())
    assert "ends sooner" not in text
    early = " ".join(shown(plan_view(made_up.plan())).split())
    assert "ends sooner when validation has stopped rising" in early
    assert "validation shows the progress" in " ".join(text.split())
    assert "memory" not in early
    known = dataclasses.replace(made_up.plan(), memory="at most 1.0 of 7.9 GiB: it")
    assert "memory at most 1.0 of 7.9 GiB: it" in " ".join(
        shown(plan_view(known)).split()
    )
    uniform = shown(plan_view(made_up.plan(task_choice="uniform")))
    assert "validation shows the progress" not in " ".join(uniform.split())
    brief = shown(plan_view(made_up.plan(), is_full=False))
    assert len(brief.splitlines()) <= 6


def test_the_verdict_says_whether_training_helped_and_what_was_reached() -> None:
    before = measured(
        refund=[4] * 8, cancel=[0] * 12, **{f"f{n}": [2] for n in range(9)}
    )
    after = measured(
        refund=[1] * 8, cancel=[4] * 12, **{f"f{n}": [2] for n in range(9)}
    )
    criteria = {"success_rate": 0.9, "cost_reduction": 0.3}
    result = made_up.result(baseline=before, metrics=after, criteria=criteria)
    text = shown(result_view(result.shown, RUN), 120)
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("Training made"))
    told = lines[first:]
    assert told[0].startswith(
        "Training made no difference beyond chance: pass^1 43 % -> 64 % (p"
    )
    assert told[1] == "Better beyond chance: cancel 0 % -> 100 %."
    assert told[2] == "Worse beyond chance: refund 100 % -> 25 %."
    assert told[3].startswith("Of the aims of coding, not yet: success rate 64 %")
    assert "cost reduction not measured (of 30 %)" in told[3]
    assert "3 more families did not change." in text
    report = render_report(result)
    assert "of wall time on CPU (2 cores), " in report
    assert "**Training made no difference" in report
    assert "Worse beyond chance: refund 100 % -> 25 %." in report


def test_what_was_reached_comes_before_what_was_missed() -> None:
    criteria = {"success_rate": 0.99, "tool_reliability": 0.9}
    aims = made_up.result(criteria=criteria)
    config = {**aims.config, "goal": criteria}
    own = aims.model_copy(update={"config": config})

    said = [
        " ".join(shown(verdict_view(made.shown, RUN), 200).split())
        for made in (aims, own)
    ]

    assert "reached: tool reliability 97 % (of 90 %); not yet: success rate" in said[0]
    assert "missed" not in said[0]
    assert "Reached: tool reliability 97 % (of 90 %). Goal missed: success" in said[1]


def test_an_agent_that_is_not_better_is_not_offered_for_use() -> None:
    same = made_up.result().baseline
    kept = made_up.result().saved.model_copy(update={"is_default": False})
    steps = ["Write more tasks."]
    worse = {"metrics": same, "saved": kept, "next_steps": steps}

    text = shown(verdict_view(made_up.result(**worse).shown, RUN))

    assert "Use it" not in text
    assert "do not use it yet" in text
    assert "- Write more tasks." in text


@pytest.mark.parametrize("width", [40, 80])
def test_the_verdict_fits_a_small_terminal(width: int) -> None:
    history = [(5 * n, min(0.97, 0.5 + n / 50)) for n in range(1, 32)]
    result = made_up.result(validations=history)

    lines = shown(verdict_view(result.shown, RUN), width).splitlines()

    assert max(map(len, lines)) <= width
    assert width < 80 or len(lines) <= 24


def test_success_is_drawn_before_during_and_after_training() -> None:
    chart = shown(success_chart(0.5, [(5, 0.75), (10, 1.0)], 1.0, 80))

    rows = chart.splitlines()[1:]
    assert [row.count("███") for row in rows[:4]] == [2, 3, 4, 4]
    assert rows[4].split() == ["before", "5", "10", "after"]


def test_report_is_markdown_with_everything() -> None:
    assert "L4 is ended" in render_report(made_up.result(), "runpod's L4 is ended.")
    text = render_report(made_up.result())
    for part in (
        "# coding, trained through langchain\n",
        "| pass^4 | 52 % [48, 56] | 97 % [94, 100] | +45 points |\n",
        "### Out of vocabulary: 60 tasks\n",
        "| masked: zero_variance | 800 |\n",
        "| **all** | **10,000** |\n",
        'agent = TrainedAgent.load("coding@1").to_langchain()\n',
        "| seed | `0` |\n",
    ):
        assert part in text


def test_gains_on_the_same_tasks_are_paired() -> None:
    before, after = made_up.evaluation(0.4).metrics, made_up.evaluation(0.9).metrics
    found = {row.label: row for row in rows(before, after)}
    assert found["pass^1"].clear == 1
    assert found["pass^1"].full_gain.startswith("+48 points [+")
    assert found["sampled tokens"].full_gain == "+0 % [+0, +0]"
    unpaired = after.model_copy(update={"by_task": ()})
    assert {row.interval for row in rows(before, unpaired)} == {""}


@pytest.mark.parametrize(
    ("framework", "method"), [("autogen", "to_autogen()"), ("native", "to_langchain()")]
)
def test_what_to_do_with_an_agent_depends_on_its_framework(
    framework: str, method: str
) -> None:
    result = made_up.result()
    result.config["framework"] = framework
    assert f'"coding@1").{method}' in render_report(result)
    assert f'"coding@1").{method}' in shown(result_view(result.shown, RUN))


@pytest.mark.parametrize("width", [60, 120])
def test_a_warm_start_has_a_column_of_its_own(width: int) -> None:
    plain = made_up.result()
    between = {"warm_start": made_up.metrics(0.8)}
    result = plain.model_copy(update=between)

    text = shown(result_view(result.shown, RUN), width)

    assert max(map(len, text.splitlines())) <= width
    assert "80 % [76, 84]" in " ".join(text.split()) or width < 80
    head = next(
        line for line in text.splitlines() if "before" in line and "gain" in line
    )
    assert "warm" in head
    assert "| 52 % [48, 56] | 80 % [76, 84] | 97 % [94, 100] |" in render_report(result)
    assert "warm start" not in shown(result_view(plain.shown, RUN), width)


@pytest.mark.parametrize(
    ("after", "weights_step", "said"),
    [
        (3, 31, "Training added nothing beyond chance in 31 steps."),
        (4, 31, "Training added to the warm start's gain in 31 steps."),
        (1, 31, "Training took away some of the warm start's gain in 31 steps"),
    ],
)
def test_the_verdict_says_first_what_training_added_to_a_warm_start(
    after: int, weights_step: int, said: str
) -> None:
    before, warm, last = (measured(a=[n] * 24, b=[2, 3]) for n in (1, 3, after))
    result = made_up.result().model_copy(
        update={
            "baseline": before,
            "warm_start": warm,
            "metrics": last,
            "weights_step": weights_step,
        }
    )
    report = render_report(result)
    verdict = report.index(said)
    assert verdict < report.index("Warm start and training together")
    assert said in " ".join(shown(result_view(result.shown, RUN)).split())
    gain = result.gains["warm start"].differences["pass_1"]
    assert (gain.value, gain.low > 0) == (pytest.approx(48 / 104), True)
    assert "paired over 26 tasks: warm start +46 points [" in report
    assert "by warm start | by training |" in report


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        (3, "With 3 held-out tasks no change can be distinguished from chance"),
        (24, ""),
    ],
)
def test_few_held_out_tasks_are_said_to_show_little(tasks: int, told: str) -> None:
    same = measured(a=[2] * tasks)
    effect = measure_effect(same, same)
    assert effect is not None
    said = verdict_words(effect)
    assert (told in said) if told else said.endswith(f"paired over {tasks} tasks).")


def test_the_form_of_calls_and_dropped_reasoning_are_in_the_plan_and_the_run(
    tmp_path: Path,
) -> None:
    plan = dataclasses.replace(made_up.plan(), form="xml", drops_reasoning=True)
    text = " ".join(shown(plan_view(plan)).split())
    assert "xml form; the chat template leaves earlier reasoning out" in text
    run = RunFolder.create(TrainingConfig.create(output=tmp_path, name="it"))
    with run.recorded(run.config(), form="xml"):
        for breaks in (0, 2):
            report = made_up.step(1 + breaks, sequences=1.0 + breaks, breaks=breaks)
            run.append_metrics(metrics_line(report, None))
            assert ("2 prefix breaks" in line_of(report)) == bool(breaks)
    text = " ".join(shown(run_view(run, "done", None)).split())
    assert "tool calls xml form" in text
    assert "sequences 2.00 a rollout, 2 prefix breaks" in text
