"""The scenario as the trainer meets it: tasks, splits, sizes, real conversations."""

import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import ScenarioError, UsageError
from agentgym.models.nano import nano_path
from agentgym.packs.customer_support.families import FAMILIES
from agentgym.packs.customer_support.names import NAMES
from agentgym.packs.customer_support.scenario import CustomerSupportScenario
from agentgym.packs.customer_support.story import FORMS, INTENTS
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios import Environment, get_scenario
from recipes.nano.customer_support_oracle import demonstrate, solve
from tests.some import some

HELD_OUT = (Split.VALIDATION, Split.TEST)
ALL = (1, 2, 3)


def tasks_of(split: Split, each: int, seed: int = 5) -> list[Task]:
    return CustomerSupportScenario().tasks(
        split, seed, each * len(FAMILIES), levels=ALL
    )


def words(texts: object) -> set[str]:
    text = re.sub(r"\{\w+\}", " ", " ".join(texts).lower())  # type: ignore[call-overload]
    return set(re.findall(r"[a-z']+", text))


def frames(split: Split) -> set[str]:
    return {frame for p in INTENTS.values() for frame in p.frames(split)}


def forms(split: Split) -> set[str]:
    return {form for kind in FORMS.values() for form in kind[split]}


def test_the_same_seed_gives_the_same_tasks() -> None:
    assert tasks_of(Split.TEST, 2) == tasks_of(Split.TEST, 2)
    assert tasks_of(Split.TEST, 2) != tasks_of(Split.TEST, 2, seed=6)


@pytest.mark.parametrize("split", list(Split))
def test_what_customers_say_is_one_line(split: Split) -> None:
    for task in some(tasks_of(split, 10)):
        script = task.initial_state["customer"]
        facts = [text for texts in script["facts"].values() for text in texts]
        for text in (task.instruction, *facts, *script["later"]):
            assert text == " ".join(text.split())


def test_levels_are_checked() -> None:
    with pytest.raises(UsageError, match="Levels"):
        CustomerSupportScenario().tasks(Split.TRAIN, 0, 1, levels=(4,))
    assert {t.level for t in CustomerSupportScenario().tasks(Split.TEST, 0, 40)} == {
        1,
        2,
    }


def test_plans_have_one_to_five_calls() -> None:
    lengths = {len(task.goal["plan"]) for task in tasks_of(Split.TRAIN, 3)}
    assert lengths == {1, 2, 3, 4, 5}


@pytest.mark.slow
@pytest.mark.parametrize("split", list(Split))
async def test_every_argument_of_a_plan_can_be_known(split: Split) -> None:
    """Customer or tools have shown each value before the call that uses it."""
    for task in some(tasks_of(split, 8)):
        messages = (await demonstrate(task)).messages
        needed = iter(task.goal["plan"])
        seen = ""
        for message in messages[1:]:
            for call in message.get("tool_calls", ()):
                step = next(needed)
                assert call["function"]["name"] == step["tool"]
                for value in step["args"].values():
                    shown = rf"(?<!\w){re.escape(str(value).lower())}(?!\w)"
                    assert re.search(shown, seen), (task.id, value)
            if message["role"] != "assistant":
                seen += f"\n{message['content'].lower()}"


def test_names_phrases_and_forms_of_the_splits_differ() -> None:
    seen_words: set[str] = set()
    seen_texts: set[str] = set()
    for split in Split:
        pool = {word.lower() for word in NAMES[split].words()}
        texts = frames(split) | forms(split) | set(NAMES[split].subjects)
        texts |= set(NAMES[split].numbers)
        assert not pool & seen_words
        assert not texts & seen_texts
        seen_words |= pool
        seen_texts |= texts


@pytest.mark.slow
def test_no_name_of_another_split_occurs_in_tasks() -> None:
    for split in Split:
        text = "\n".join(t.model_dump_json() for t in tasks_of(split, 40)).lower()
        seen = set(re.findall(r"[a-z]+", text))
        for other in set(Split) - {split}:
            assert not seen & {word.lower() for word in NAMES[other].words()}


@pytest.mark.parametrize("intent", INTENTS)
def test_an_intent_has_many_frames(intent: str) -> None:
    assert len(INTENTS[intent].frames(Split.TRAIN)) >= 20
    for split in (*HELD_OUT, Split.OUT_OF_VOCABULARY):
        assert len(INTENTS[intent].frames(split)) >= 8


@pytest.mark.parametrize("split", HELD_OUT)
def test_held_out_phrases_use_words_of_training(split: Split) -> None:
    train = words(frames(Split.TRAIN)) | words(forms(Split.TRAIN))
    assert words(frames(split)) | words(forms(split)) <= train


def test_out_of_vocabulary_phrases_have_a_word_of_their_own() -> None:
    known = set().union(*(words(frames(s)) for s in (Split.TRAIN, *HELD_OUT)))
    for frame in some(frames(Split.OUT_OF_VOCABULARY)):
        assert words([frame]) - known, frame


@pytest.mark.slow
def test_every_family_has_hundreds_of_surface_forms() -> None:
    tasks = tasks_of(Split.TRAIN, 150)
    for family in FAMILIES:
        ours = {task.instruction for task in tasks if task.family == family.name}
        assert len(ours) > (20 if family.name == "ask_for_human" else 120)


@pytest.mark.slow
async def test_conversations_fit_the_shipped_policy() -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    scenario = CustomerSupportScenario()
    tools = [spec.to_openai() for spec in scenario.tools()]

    def count(messages: list[dict[str, object]]) -> int:
        ids = tokenizer.apply_chat_template(messages, tools=tools)["input_ids"]
        return len(ids)

    assert count([{"role": "system", "content": scenario.system_prompt()}]) <= 425
    for split in Split:
        for task in tasks_of(split, 4):
            assert count((await demonstrate(task)).messages) <= 900


async def test_the_oracle_keeps_within_the_turns() -> None:
    for task in some(tasks_of(Split.TEST, 5)):
        said = [
            m for m in (await demonstrate(task)).messages if "assistant" in m["role"]
        ]
        assert len(said) <= CustomerSupportScenario.max_turns


async def test_rules_can_be_left_out() -> None:
    kept = set()
    for task in tasks_of(Split.TRAIN, 3):
        reward = (await demonstrate(task, follow_rules=0.0)).reward
        kept.add(reward.success)
    assert kept == {True, False}


def test_only_its_own_environments_are_scored() -> None:
    class Other(Environment):
        pass

    [task] = CustomerSupportScenario().tasks(Split.TRAIN, 0, 1)
    trajectory = Trajectory(rollout_id="r", scenario="", task_id=task.id)
    with pytest.raises(ScenarioError, match="not an environment of this scenario"):
        CustomerSupportScenario().calculate_reward(task, Other(), trajectory)


def test_what_it_promises() -> None:
    assert get_scenario("customer_support").success_criteria() == {
        "tool_reliability": 0.97,
        "success_rate": 0.9,
        "cost_reduction": 0.30,
    }


def asker(tasks: list[Task]) -> ScriptedPolicy:
    """Return a policy that asks until a step's arguments are known, then calls."""
    plans = {task.instruction: solve(task) for task in tasks}

    def respond(request: ChatRequest) -> Reply:
        told = [m["content"] for m in request.messages if m["role"] in ("user", "tool")]
        made = sum(m["role"] == "tool" for m in request.messages)
        first = next(m["content"] for m in request.messages if m["role"] == "user")
        plan = plans[first]
        if made == len(plan):
            return Reply("Done.")
        step = plan[made]
        if all(str(v).lower() in str(told).lower() for v in step.args.values()):
            extra = {"reason": "late"} if step.tool == "escalate" else {}
            return Reply(calls=[(step.tool, {**step.args, **extra})])
        missing = next(k for k, v in step.args.items() if str(v) not in str(told))
        done = plan[made].request > plan[made - 1].request
        return Reply("Done." if done else f"What is the {missing.split('_')[0]}?")

    return ScriptedPolicy(respond)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["native", "langchain"])
def test_conversations_through_real_agents(tmp_path: Path, framework: str) -> None:
    tasks = tasks_of(Split.TRAIN, 1)
    requests = [
        RolloutRequest(f"r{i}", task, train=True, group=f"g{i}", step=1)
        for i, task in enumerate(tasks)
    ]
    config = TrainingConfig.create(scenario="customer_support", framework=framework)
    with RolloutSession(config, asker(tasks), tmp_path, 1) as session:
        found = session.run(requests, lambda _: None)
    for trajectory in some(found):
        assert trajectory.success, json.dumps(trajectory.to_dict())[-2000:]
