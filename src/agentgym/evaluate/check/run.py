"""Runs every tripwire on one scenario."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from agentgym.errors import ScenarioError
from agentgym.evaluate.check import repeats, tripwires
from agentgym.evaluate.check.examination import ORACLE, Examination, Finding
from agentgym.scenarios.registry import get_scenario


class Tripwire(NamedTuple):
    """A way in which scenarios go wrong.

    Attributes:
        look: Yields what is wrong.
        holds: What is so if nothing is.
    """

    look: Callable[[Examination], Iterator[str]]
    holds: str


_TRIPWIRES = {
    "card": Tripwire(tripwires.card, "attributes and limits make sense"),
    "tools": Tripwire(tripwires.tools, "named, described and typed"),
    "tasks": Tripwire(tripwires.tasks, "every split has as many as are asked for"),
    "episodes": Tripwire(tripwires.episodes, "no tool crashed on any arguments"),
    "rewards": Tripwire(tripwires.rewards, "in range; success is paid best"),
    "do-nothing": Tripwire(tripwires.do_nothing, "earns nothing"),
    "call-everything": Tripwire(tripwires.call_everything, "earns nothing"),
    "oracle": Tripwire(tripwires.oracle, "the scenario's needed calls succeed"),
    "splits": Tripwire(tripwires.splits, "share no task, request or declared word"),
    "determinism": Tripwire(repeats.determinism, "a seed means the same everywhere"),
    "isolation": Tripwire(repeats.isolation, "episodes share nothing"),
}
_MOST_SHOWN = 4
_MOST_TOKENS = 160


def check_scenario(reference: str, *, tasks: int = 60, seed: int = 0) -> list[Finding]:
    """Run every tripwire.

    Args:
        reference: Name or path of the scenario.
        tasks: Training tasks to play, by each agent.
        seed: Of the tasks.

    Returns:
        One finding a tripwire; a single one if the scenario cannot be loaded.

    Raises:
        UsageError: There is no such scenario.
    """
    try:
        scenario = get_scenario(reference)
    except ScenarioError as error:
        return [Finding("load", "fail", str(error))]
    examined = Examination(reference, scenario, tasks, seed)
    try:
        findings = [Finding("load", "pass", type(scenario).__name__)]
        for name, tripwire in _TRIPWIRES.items():
            findings.append(_find(name, partial(_trip, name, tripwire), examined))
        return [*findings, _find("prompts", _prompts, examined)]
    finally:
        scenario.close()


def _find(
    name: str, look: Callable[[Examination], Finding], examined: Examination
) -> Finding:
    """Look, and make what is raised a finding."""
    try:
        return look(examined)
    except Exception as error:  # noqa: BLE001 - the scenario's own code
        return Finding(name, "fail", f"it raised {type(error).__name__}: {error}")


def _trip(name: str, tripwire: Tripwire, examined: Examination) -> Finding:
    wrong = list(tripwire.look(examined))
    if wrong:
        more = len(wrong) - _MOST_SHOWN
        shown = "; ".join(wrong[:_MOST_SHOWN])
        return Finding(name, "fail", shown + (f"; and {more} more" if more > 0 else ""))
    if name == "oracle" and not examined.of(ORACLE):
        return Finding(name, "skip", "no needed_calls(task) that could be scored")
    few = _few_tasks(examined) if name == "tasks" else ""
    return Finding(name, "warn" if few else "pass", few or tripwire.holds)


def _few_tasks(examined: Examination) -> str:
    """Say which splits have fewer tasks than they were asked for."""
    few = [
        f"{split.value} has {len(made)}"
        for split, made in examined.tasks.items()
        if len(made) < examined.asked
    ]
    asked = f" of {examined.asked} tasks that were asked for: they will come again"
    return ", ".join(few) + asked if few else ""


def _prompts(examined: Examination) -> Finding:
    """Say whether first prompts leave room in the context of the shipped policy."""
    if find_spec("transformers") is None:
        return Finding("prompts", "skip", "needs the extra 'local' to count tokens")
    from transformers import AutoConfig, AutoTokenizer

    from agentgym.models.nano import nano_path

    tokenizer: Any = AutoTokenizer.from_pretrained(nano_path())
    context = int(AutoConfig.from_pretrained(nano_path()).max_position_embeddings)
    told = [spec.to_openai() for spec in examined.scenario.tools()]
    system = {"role": "system", "content": examined.scenario.system_prompt()}
    longest = max(
        len(
            tokenizer.apply_chat_template(
                [system, {"role": "user", "content": task.instruction}],
                tools=told,
                add_generation_prompt=True,
                return_dict=False,
            )
        )
        for task in examined.to_play
    )
    why = f"the longest first prompt has {longest} tokens; nano's context is {context}"
    if longest + _MOST_TOKENS > context:
        return Finding("prompts", "warn", f"{why}: choose a larger model")
    return Finding("prompts", "pass", why)
