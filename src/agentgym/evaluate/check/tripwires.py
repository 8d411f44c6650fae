"""Tripwires: tests of the texts, rewards and tools of a scenario.

Agents without a model must earn less than a right solution.
"""

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from typing import Any

from agentgym.core.json_schema import properties
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, name_fault
from agentgym.errors import ScenarioError
from agentgym.evaluate.check.examination import ORACLE, Examination, Note, Played
from agentgym.evaluate.criteria import flaws
from agentgym.scenarios.answer_text import answer_notes
from agentgym.scenarios.base import reward_problem
from agentgym.scenarios.packs import locate_pack, pack_name
from agentgym.scenarios.task_lists import task_list

_MOST_TOKENS = 160
_NEAR_ZERO = 0.05
_TOO_MUCH = 0.15
_HALF = 0.5
_JUDGED = 12
REQUIRED = (Split.TRAIN, Split.VALIDATION, Split.TEST)
_DIFFICULTIES = ("beginner", "intermediate", "advanced")
_TYPED = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}


def card(examined: Examination) -> Iterator[str | Note]:
    """Check a scenario's texts, name, reward range, turn limit and success criteria."""
    scenario = examined.scenario
    said = scenario.card()
    for name in ("description", "difficulty", "estimated_time"):
        if not said[name]:
            yield f"{name} is empty"
    if not said["system_prompt"]:
        yield Note("warn", "system_prompt is empty: agents know the request alone")
    if said["difficulty"] not in _DIFFICULTIES:
        yield f"difficulty is {said['difficulty']!r}, not one of {_DIFFICULTIES}"
    low, high = scenario.reward_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        yield f"reward_range is {scenario.reward_range}, not two numbers that rise"
    if scenario.max_turns < 2:
        yield f"max_turns is {scenario.max_turns}: a call and an answer are two turns"
    yield from flaws(scenario)
    path = locate_pack(examined.reference)
    if path is not None and pack_name(path) != scenario.name:
        yield f"the folder is {pack_name(path)!r} but `name` is {scenario.name!r}"


def tools(examined: Examination) -> Iterator[str | Note]:
    """Check the tools' names, descriptions and argument types, as a model sees them."""
    scenario = examined.scenario
    usual = scenario.tools()
    sets = [("the scenario", usual)]
    for task in examined.to_play:
        own = examined.tools[task.id]
        if not usual or own != usual:
            sets.append((f"the environment of task {task.id}", own))
    for where, specs in sets[not usual :]:
        if not (specs or scenario.judges_work or scenario.has_late_tools):
            yield f"{where} has none"
        names = [spec.name for spec in specs]
        for name in {name for name in names if names.count(name) > 1}:
            yield f"{where} has two named {name!r}"
    yield from _schemas([spec for _, specs in sets for spec in specs])
    if usual:
        yield from _unlike(usual, sets[1:])


def _schemas(specs: Iterable[ToolSpec]) -> Iterator[str | Note]:
    silent, untyped = [], []
    for spec in {spec.name: spec for spec in specs}.values():
        if fault := name_fault(spec.name):
            yield f"{spec.name!r} is not a valid name of a tool: {fault}"
        if not spec.description and type(spec) is ToolSpec:  # not UnseenSpec
            silent.append(repr(spec.name))
        for argument, schema in properties(spec.parameters).items():
            if not _TYPED & set(schema):
                untyped.append(f"{argument!r} of {spec.name!r}")
        message = spec.to_openai()
        if json.loads(json.dumps(message)) != message:
            yield f"the schema of {spec.name!r} does not survive JSON"
    notes = []
    if silent:
        notes.append(
            f"{', '.join(silent)} has no description: its name and arguments alone "
            "must show a model when to call it. A docstring makes it easier to learn"
        )
    if untyped:
        notes.append(
            f"argument {', '.join(untyped)} has no type: any value passes as valid"
        )
    if notes:
        yield Note("warn", "; ".join(notes))


def _unlike(
    usual: Sequence[ToolSpec], sets: Iterable[tuple[str, Sequence[ToolSpec]]]
) -> Iterator[str]:
    """Find an environment whose tools differ from those of ``Scenario.tools``."""
    known = {spec.name: spec.to_openai() for spec in usual}
    for where, specs in sets:
        names = [spec.name for spec in specs]
        if all(known.get(spec.name) == spec.to_openai() for spec in specs):
            continue  # a subset: not every task has every tool
        yield (
            f"{where} has {names}, and tools() of the scenario has {list(known)}, or "
            "other arguments. If each task has tools of its own, return [] there"
        )
        return


def episodes(examined: Examination) -> Iterator[str]:
    """Find episodes in which a tool or the environment crashes."""
    crashed = [e for e in examined.episodes if e.error and e.trajectory is None]
    for episode in crashed[:1]:
        yield (
            f"{len(crashed)} of {len(examined.episodes)} crashed; {episode.agent} on "
            f"task {episode.task.id}: {episode.error}. Tools raise ToolError to refuse"
        )


def rewards(examined: Examination) -> Iterator[str]:
    """Find rewards that are not numbers, are out of range, or contradict success."""
    for episode in examined.episodes:
        wrong = _reward_fault(episode, examined.scenario.reward_range)
        if wrong:
            yield f"{episode.agent} on task {episode.task.id}{wrong}"
            return
    yield from _broadcast(examined)


def answer(examined: Examination) -> Iterator[Note]:
    """Warn if the reward depends on text of the model that training does not change."""
    scenario = examined.scenario
    for note in answer_notes(scenario, scenario.define_trainable_components()):
        yield Note("warn", note)


def _reward_fault(episode: Played, reward_range: tuple[float, float]) -> str:
    reward, middle = episode.scored, sum(reward_range) / 2
    if episode.trajectory is None:
        return ""
    if episode.error:
        return f": calculate_reward raised {episode.error}"
    if problem := reward_problem(reward, reward_range):
        return f": calculate_reward returned {problem}"
    if reward.success and reward.value <= middle:
        value = f"is a success with a reward of {reward.value:g}"
        return f" {value}, not above the middle of its range"
    total = sum(reward.parts.values())
    if reward.parts and not math.isclose(total, reward.value, abs_tol=1e-6):
        return f": the parts add up to {total:g}, not {reward.value:g}"
    return ""


def _broadcast(examined: Examination) -> Iterator[str]:
    """Check that ``broadcast_rewards`` returns one finite number per model call."""
    scored = [
        episode.trajectory.scored(episode.reward)
        for episode in examined.episodes
        if episode.trajectory is not None and episode.reward is not None
    ]
    if not scored:
        return
    longest = max(scored, key=lambda trajectory: len(trajectory.model_calls))
    calls = len(longest.model_calls)
    try:
        given = list(examined.scenario.broadcast_rewards(longest))
        usable = len(given) == calls and all(map(math.isfinite, given))
    except Exception as error:  # noqa: BLE001 - the scenario's own code
        yield f"broadcast_rewards raised {type(error).__name__}: {error}"
        return
    if not usable:
        yield f"broadcast_rewards returned {given}, not {calls} finite numbers"


def oracle(examined: Examination) -> Iterator[str | Note]:
    """Check that an agent succeeds if it makes the needed calls of a task."""
    played = [e for e in examined.episodes if e.agent == ORACLE]
    failed = [e for e in played if e.error or (e.reward and not e.reward.success)]
    for episode in failed[:1]:
        score = episode.error or repr(episode.reward)
        yield f"{len(failed)} of {len(played)} fail; task {episode.task.id}: {score}"
    if not examined.of(ORACLE):
        yield Note("skip", "no needed_calls(task) that could be scored")


def tasks(examined: Examination) -> Iterator[str | Note]:
    """Check that every split has tasks; warn if it has fewer than were requested."""
    few = []
    for split in REQUIRED:
        if split not in examined.scenario.splits:
            yield f"no tasks exist for the split {split.value}"
    for split in examined.scenario.splits:
        try:
            made = examined.scenario.tasks(split, examined.seed, examined.asked)
            task_list(made, f"tasks({split.value}) of {examined.scenario.name}")
        except ScenarioError as error:
            yield str(error)
        except Exception as error:  # noqa: BLE001 - the scenario's own code
            yield f"tasks({split.value}) raised {type(error).__name__}: {error}"
        else:
            if not isinstance(made, list):
                yield f"tasks({split.value}) returned a {type(made).__name__}, no list"
            elif len(made) < examined.asked:
                few.append(f"{split.value} has {len(made)}")
    if few:
        asked = f"of {examined.asked} tasks that were asked for: they will come again"
        yield Note("warn", f"{', '.join(few)} {asked}")


def splits(examined: Examination) -> Iterator[str]:
    """Check that no task id, request or word of ``vocabulary`` occurs in two splits."""
    vocabulary = examined.scenario.vocabulary
    for split, tasks in examined.tasks.items():
        wrong = [task.split for task in tasks if task.split is not split]
        if wrong:
            yield f"tasks({split.value}) gives tasks of split {wrong[0].value}"
        if len({task.id for task in tasks}) < len(tasks):
            yield f"two tasks of {split.value} have the same id"
    for one, other in combinations(examined.tasks, 2):
        pair = f"{one.value} and {other.value}"
        first, second = examined.tasks[one], examined.tasks[other]
        if ids := {task.id for task in first} & {task.id for task in second}:
            yield f"{pair} share the task id {min(ids)!r}"
        if said := _said(first) & _said(second):
            yield f"{pair} share {len(said)} instructions, e.g. {min(said)!r}"
        if own := vocabulary(one) & vocabulary(other):
            yield f"{pair} both declare {min(own)!r}"
    for split in examined.tasks:
        yield from _leaked(examined, split)


def _leaked(examined: Examination, split: Split) -> Iterator[str]:
    words = sorted(examined.scenario.vocabulary(split))
    if not words:
        return
    wanted = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.I)
    for other, tasks in examined.tasks.items():
        hits = (wanted.search(task.instruction) for task in tasks if other is not split)
        if hit := next(filter(None, hits), None):
            yield f"{hit[0]!r} belongs to {split.value} but occurs in {other.value}"


def _said(tasks: Iterable[Task]) -> set[str]:
    return {" ".join(task.instruction.lower().split()) for task in tasks}


def prompts(examined: Examination) -> Iterator[Note]:
    """Check that first prompts leave room for an answer in nano's context."""
    if find_spec("transformers") is None:
        yield Note("skip", "needs the extra 'local' to count tokens")
        return
    from transformers import PreTrainedTokenizerFast  # AutoTokenizer imports torch

    from agentgym.models.nano import nano_path

    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(nano_path())
    config = json.loads((nano_path() / "config.json").read_text(encoding="utf-8"))
    context = config["max_position_embeddings"]
    system = {"role": "system", "content": examined.scenario.system_prompt()}
    longest = max(
        len(
            tokenizer.apply_chat_template(
                [system, {"role": "user", "content": task.instruction}],
                tools=[spec.to_openai() for spec in examined.tools[task.id]],
                add_generation_prompt=True,
                return_dict=False,
            )
        )
        for task in examined.to_play
    )
    why = f"the longest first prompt has {longest} tokens; nano's context is {context}"
    if longest + _MOST_TOKENS <= context:
        yield Note("pass", why)
    else:
        yield Note("warn", f"{why}: choose a larger model")


@dataclass(frozen=True)
class _Pay:
    """The rewards of one agent in one family (kind) of tasks.

    Attributes:
        unearned: Mean difference between the reward and the reward that the agent's
            calls deserve (see ``_due``); None if the needed calls are unknown.
        lucky: Number of episodes that by chance made all needed calls and called no
            other tool.
    """

    family: str
    mean: float
    unearned: float | None
    lucky: int
    episodes: int


def do_nothing(examined: Examination) -> Iterator[str | Note]:
    """Check that an agent without tool calls earns nothing."""
    most = _NEAR_ZERO * examined.top
    pays = _pays(examined, "do-nothing")
    for pay in pays:
        if pay.unearned is not None and abs(pay.unearned) > most:
            yield (
                f"family {pay.family!r} pays {pay.mean:.3f} on average, more than "
                f"{most:g} from zero"
            )
    yield from _without_plan(examined, pays, "no call at all")


def call_everything(examined: Examination) -> Iterator[str | Note]:
    """Check that an agent that calls every tool earns little; it may earn less than 0.

    In a scenario with few tools, the agent makes the needed calls in some episodes by
    chance. A reward for these calls is right; a reward for other calls is a fault.
    """
    most, lucky = _TOO_MUCH * examined.top, []
    pays = _pays(examined, "call-everything")
    for pay in pays:
        said = f"family {pay.family!r} pays {pay.mean:.3f} on average"
        if pay.unearned is not None and pay.unearned > most:
            yield (
                f"{said}, {pay.unearned:.3f} of it for other calls than the plan's; at "
                f"most {most:g} may be"
            )
        elif pay.unearned is not None and pay.mean > _NEAR_ZERO * examined.top:
            luck = f"{pay.lucky} of {pay.episodes} guesses were just the calls"
            lucky.append(f"{said}: {luck} of the plan")
    yield from _without_plan(examined, pays, "any calls")
    if lucky:
        yield Note("pass", f"{'; '.join(lucky)}. With few tools guesses are right")


_IDLE_CHANGES = {
    "a test of the agent's own": {
        "tests/test_own.py": "def test_everything():\n    assert True\n"
    },
    "tidy code that does nothing": {
        "notes.py": '"""Notes on the task."""\n\nDONE = True\n'
    },
}


def code(examined: Examination) -> Iterator[str | Note]:
    """Check that useless changes to files, e.g. an empty test, earn nothing."""
    judge, most = examined.scenario.judge_changes, _NEAR_ZERO * examined.top
    judged = 0
    for task in examined.to_play[:_JUDGED]:
        for name, changes in _IDLE_CHANGES.items():
            reward = judge(task, changes)
            if reward is None:
                continue
            judged += 1
            if reward.success or reward.value > most:
                paid = f"pays {reward.value:.3f} for {name}, more than {most:g}"
                yield f"task {task.id} {paid}"
    if not judged:
        yield Note("pass", "it has no judge_changes, so it pays for no code")


def _without_plan(
    examined: Examination, pays: Sequence[_Pay], message: str
) -> Iterator[str | Note]:
    """Yield a problem or note on rewards in tasks whose needed calls are unknown.

    A mean reward above half of the highest is a problem, a lower one gives a warning.
    ``message`` names the agent's calls, e.g. ``any calls``.
    """
    unknown = [pay for pay in pays if pay.unearned is None]
    paid = [pay for pay in unknown if pay.mean > _NEAR_ZERO * examined.top]
    if not paid:
        return
    total = sum(pay.episodes for pay in unknown)
    mean = sum(pay.mean * pay.episodes for pay in unknown) / total
    text = f"{message} pays {mean:.3f} on average for tasks without a known plan: "
    text += ", ".join(repr(pay.family) for pay in paid)
    if mean > _HALF * examined.top:
        yield f"{text}; more than half of {examined.top:g}"
    else:
        yield Note("warn", f"{text}. See that a right answer pays more")


def _pays(examined: Examination, agent: str) -> list[_Pay]:
    """Return the rewards of an agent, by family of tasks."""
    right = {
        family: statistics.mean(reward.value for reward in found)
        for family, found in examined.of(ORACLE).items()
    }
    families: dict[str, list[Played]] = defaultdict(list)
    for episode in examined.episodes:
        if episode.agent == agent and episode.reward is not None:
            families[episode.task.family].append(episode)
    pays = []
    for family, played in families.items():
        rewards = [e.reward.value for e in played if e.reward is not None]
        dues = [_due(examined, episode) for episode in played]
        known = [due for due in dues if due is not None]
        unearned = None
        if family in right and len(known) == len(dues):
            best = right[family]
            pairs = zip(rewards, known, strict=True)
            unearned = statistics.mean(value - share * best for value, share in pairs)
        lucky = sum(due == 1.0 for due in known)
        mean = statistics.mean(rewards)
        pays.append(_Pay(family, mean, unearned, lucky, episodes=len(played)))
    return pays


def _due(examined: Examination, episode: Played) -> float | None:
    """Return the share of the full reward that an episode's calls deserve, 0..1.

    A right solution earns the full reward. The share is the number of needed calls that
    were made, divided by the number of all needed calls. It is halved if other tools
    were called too, since a scenario may penalise this. If the task needs no call, the
    share is 1 without a call and 0 with any call. None if the needed calls are unknown.
    """
    needed = examined.scenario.needed_calls(episode.task)
    if needed is None or episode.trajectory is None:
        return None
    made = episode.trajectory.get_tool_calls()
    others = {call.name for call in made} - set[str]().union(*(n.tools for n in needed))
    if not needed:
        return 0.0 if others else 1.0
    specs = {spec.name: spec for spec in examined.tools[episode.task.id]}
    left = list(made)
    for need in needed:
        for call in left:
            if need.accepts(call, specs.get(call.name), succeeded=True):
                left.remove(call)
                break
    share = (len(made) - len(left)) / len(needed)
    return _HALF * share if others else share
