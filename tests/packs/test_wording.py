"""Words and phrases: those of held-out splits are new, and made of known words."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from agentgym.core.task import Split
from agentgym.packs.coding.families import PHRASES, REFERENCES
from agentgym.packs.coding.names import NAMES
from agentgym.packs.customer_support.story import FORMS, INTENTS
from agentgym.packs.customer_support.story import NAMES as SUPPORT_NAMES
from agentgym.packs.kit.phrases import GREETINGS, MANNERS, expand, read_pools
from agentgym.scenarios import get_scenario
from tests.some import some

HELD_OUT = (Split.VALIDATION, Split.TEST)
POOLS = {
    "coding": (PHRASES, REFERENCES, NAMES),
    "customer_support": (INTENTS, FORMS, SUPPORT_NAMES),
}
PACKS = pytest.mark.parametrize("pack", POOLS)


def words(texts: Iterable[str]) -> set[str]:
    text = re.sub(r"\{\w+\}", " ", " ".join(texts).lower())
    return set(re.findall(r"[a-z0-9']+", text))


def frames(pack: str, split: Split) -> set[str]:
    return {f for phrases in POOLS[pack][0].values() for f in phrases.frames(split)}


def forms(pack: str, split: Split) -> set[str]:
    return {form for kind in POOLS[pack][1].values() for form in kind[split]}


def manners(split: Split) -> set[str]:
    return words((*MANNERS[split], *GREETINGS[split]))


@PACKS
def test_a_request_has_many_frames(pack: str) -> None:
    for name, phrases in POOLS[pack][0].items():
        assert len(phrases.frames(Split.TRAIN)) >= 20, name
        for split in (*HELD_OUT, Split.OUT_OF_VOCABULARY):
            assert len(phrases.frames(split)) >= 8, name


@PACKS
def test_names_phrases_and_forms_of_the_splits_differ(pack: str) -> None:
    seen = set[str]()
    for split in Split:
        pool = {word.lower() for word in POOLS[pack][2][split].words()}
        texts = frames(pack, split)
        texts |= forms(pack, split) if pack == "customer_support" else set()
        assert not (pool | texts) & seen
        seen |= pool | texts


@PACKS
@pytest.mark.parametrize("split", HELD_OUT)
def test_held_out_phrases_use_words_of_training(pack: str, split: Split) -> None:
    known, used = (
        words(frames(pack, s)) | words(forms(pack, s)) | manners(s)
        for s in (Split.TRAIN, split)
    )
    assert used <= known


@PACKS
def test_out_of_vocabulary_phrases_have_a_word_of_their_own(pack: str) -> None:
    known = set().union(*(words(frames(pack, s)) for s in (Split.TRAIN, *HELD_OUT)))
    for frame in some(sorted(frames(pack, Split.OUT_OF_VOCABULARY))):
        assert words([frame]) - known, frame


@pytest.mark.slow
@PACKS
def test_training_tasks_have_no_held_out_name_and_many_wordings(pack: str) -> None:
    scenario = get_scenario(pack)
    tasks = scenario.tasks(Split.TRAIN, 5, 2_000)
    seen = {word for task in tasks for word in words([task.model_dump_json()])}
    for split in set(Split) - {Split.TRAIN}:
        names = POOLS[pack][2][split]
        pairs = getattr(names, "parameters", ())  # ordinary words of code
        own = names.words() - {w for pair in pairs for w in pair}
        assert not seen & {word.lower() for word in own}
    assert len({task.instruction for task in tasks}) > 1_500


def test_alternatives_expand_to_their_product() -> None:
    assert expand(["[a|b] x [c|]"]) == ["a x c", "a x", "b x c", "b x"]


def write(folder: Path, split: Split, text: str) -> None:
    (folder / f"{split.value}.txt").write_text(text)


def test_sections_hold_their_lines_split_by_split(tmp_path: Path) -> None:
    for split in Split:
        text = f"# note\n[ask]\n[a|b] {split.value}\n\nc: d\n[end]\nbye\n"
        write(tmp_path, split, text)
    (tmp_path / "train_more.txt").write_text("[end]\nsee you\n")
    pools = read_pools(tmp_path)
    assert list(pools) == ["ask", "end"]
    assert pools["ask"][Split.TEST] == ("[a|b] test", "c: d")
    assert pools["end"][Split.TRAIN] == ("bye", "see you")
