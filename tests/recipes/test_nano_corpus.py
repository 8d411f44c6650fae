"""The corpus: the same for a seed, and free of what the scenarios hold out."""

import itertools
import random
import re

import pytest
from transformers import AutoTokenizer

from agentgym.core.task import Split
from agentgym.models.nano import nano_path
from agentgym.packs.coding.families import FAMILIES
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.packs.customer_support.scenario import CustomerSupportScenario
from agentgym.packs.customer_support.story import INTENTS
from recipes.nano.conversation import ASSISTANT, END, SLIP
from recipes.nano.corpus import MAKERS, SUPERVISED, conversations, encode
from recipes.nano.held_out import HELD, Held, held_frames
from recipes.nano.values import woven
from tests.some import some

KINDS = sorted(MAKERS)


@pytest.fixture(scope="module")
def held() -> Held:
    return Held.of_scenarios()


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides_the_corpus(kind: str, held: Held) -> None:
    first, second, other = (
        [talk.text() for talk in conversations(kind, seed, 5, held)]
        for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_held_out_occurs(kind: str, held: Held) -> None:
    for talk in some(conversations(kind, 11, 150, held)):
        text = talk.text().lower()
        assert not held.names.search(text)
        assert not held.phrase_in(text)


@pytest.mark.parametrize("split", HELD)
def test_held_out_requests_are_recognised(split: Split, held: Held) -> None:
    """The filter that the corpus passes through knows every held-out task."""
    tasks = [
        *CodingScenario().tasks(split, 5, 120, levels=(1, 2, 3)),
        *CustomerSupportScenario().tasks(split, 5, 120, levels=(1, 2, 3)),
    ]
    for task in some(tasks):
        assert held.found_in(f"<|user|>{task.instruction}{END}"), task.instruction


def test_no_held_out_frame_is_a_training_frame() -> None:
    grammars = [*(family.phrases for family in FAMILIES), *INTENTS.values()]
    train = {f for phrases in grammars for f in phrases.frames(Split.TRAIN)}
    assert train.isdisjoint(held_frames())


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_the_models_own_text_is_supervised(kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    talk = MAKERS[kind](random.Random("own"))
    marked = encode(tokenizer, talk)
    ids = (marked & (SUPERVISED - 1)).tolist()
    assert tokenizer.decode(ids) == talk.text()
    own = tokenizer.decode(
        [i for i, m in zip(ids, marked, strict=True) if m >= SUPERVISED]
    )
    pattern = re.escape(ASSISTANT) + r"(.*?<\|end\|>)"
    assert own == "".join(re.findall(pattern, talk.text(), re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coding", "customer_support"])
def test_a_call_that_went_wrong_is_neither_learned_nor_followed_by_the_same(
    kind: str,
) -> None:
    found = 0
    for number in range(80):
        turns = MAKERS[kind](random.Random(f"slips/{number}")).turns
        slips = [text for role, text in turns if role == SLIP]
        found += bool(slips)
        learned = [text for role, text in turns if role == ASSISTANT]
        assert learned
        assert not set(slips) & set(learned)
        for (role, _), (_, result) in itertools.pairwise(turns):
            assert role != SLIP or result.startswith("Error: ")
    assert 5 <= found <= 40


def test_a_woven_name_is_always_the_same_and_may_begin_as_another() -> None:
    sources = [f"word{number}" for number in range(500)]
    names = [woven(source) for source in sources]

    assert names == [woven(source) for source in sources]
    assert len(set(names)) > 490
    assert all(re.fullmatch("[a-z]{3,16}", name) for name in names)
    assert all(woven(source, "outpost").startswith("ou") for source in sources)
