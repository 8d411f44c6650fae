"""Held-out requests use other phrases than training, but no other words."""

import re
from collections.abc import Iterable

import pytest

from agentgym.core.task import Split
from agentgym.packs.coding.families import FAMILIES, ProjectFamily
from agentgym.packs.coding.names import NAMES
from agentgym.packs.coding.references import REFERENCES
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.packs.kit.phrases import GREETINGS, MANNERS, expand
from tests.some import some

HELD_OUT = (Split.VALIDATION, Split.TEST)
# Words that carry no meaning of their own: they may come from any family.
FUNCTION_WORDS = frozenset(
    [
        *("a", "after", "all", "alone", "and", "are", "as", "be", "by", "can", "do"),
        *("does", "file", "files", "find", "first", "for", "from", "get", "had", "has"),
        *("have", "how", "i", "if", "in", "into", "is", "it", "its", "just", "look"),
        *("make", "me", "must", "need", "no", "not", "now", "of", "on", "only", "or"),
        *("our", "out", "over", "pass", "passes", "should", "show", "so", "some"),
        *("tell", "test", "tests", "that", "the", "their", "then", "there", "they"),
        *("this", "through", "to", "under", "up", "use", "us", "want", "we", "what"),
        *("when", "where", "which", "whole", "whose", "with", "you"),
    ]
)


def words(frames: Iterable[str]) -> set[str]:
    bare = (re.sub(r"\{\w+\}", " ", frame) for frame in frames)
    return {word for frame in bare for word in re.findall(r"[a-z0-9']+", frame.lower())}


def manners(split: Split) -> set[str]:
    return words((*MANNERS[split], *GREETINGS[split]))


def train_words() -> set[str]:
    frames = {f for family in FAMILIES for f in family.phrases.frames(Split.TRAIN)}
    refs = (form for forms in REFERENCES.values() for form in forms[Split.TRAIN])
    return words(frames) | words(refs) | manners(Split.TRAIN)


def as_pattern(frame: str) -> str:
    """Return a pattern of the requests that a frame may have become part of."""
    values = "|".join((r"\d+", *NAMES[Split.TRAIN].adjectives))
    pattern = re.escape(frame.rstrip(".?").lower())
    pattern = pattern.replace(r"\{args\}", f"(?:{values})")
    pattern = re.sub(r'"\\{(old|new)\\}"', '"[^"]*"', pattern)
    pattern = pattern.replace(r"\{test\}", r"\S*test_\S+")
    pattern = re.sub(r"\\{(name|param|old|new)\\}", r"\\S+", pattern)
    # Any other slot stands for at most seven words.
    return rf"\b{re.sub(r'\\{\w+\\}', r'\\S+(?: \\S+){0,6}', pattern)}\b"


def by_name(family: ProjectFamily) -> str:
    return family.name


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_a_family_has_many_frames(family: ProjectFamily) -> None:
    assert len(family.phrases.frames(Split.TRAIN)) >= (50 if family.level == 1 else 40)
    assert len(family.phrases.frames(Split.VALIDATION)) >= 24
    assert len(family.phrases.frames(Split.TEST)) >= 16
    assert len(family.phrases.frames(Split.OUT_OF_VOCABULARY)) >= 14


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
@pytest.mark.parametrize("split", HELD_OUT)
def test_held_out_phrases_use_words_of_training(
    family: ProjectFamily, split: Split
) -> None:
    own = words(family.phrases.frames(Split.TRAIN)) | manners(Split.TRAIN)
    used = words(family.phrases.frames(split))
    assert used <= train_words()
    assert used - FUNCTION_WORDS <= own


@pytest.mark.parametrize("split", HELD_OUT)
def test_held_out_references_and_manners_use_words_of_training(split: Split) -> None:
    forms = [form for kind in REFERENCES.values() for form in kind[split]]
    assert words(forms) | manners(split) <= train_words()


@pytest.mark.parametrize("family", FAMILIES, ids=by_name)
def test_out_of_vocabulary_phrases_have_a_word_of_their_own(
    family: ProjectFamily,
) -> None:
    known = train_words()
    for held in HELD_OUT:
        known |= words(family.phrases.frames(held))
    for frame in some(family.phrases.frames(Split.OUT_OF_VOCABULARY)):
        assert words([frame]) - known, frame


@pytest.mark.slow
def test_no_held_out_frame_occurs_in_training_requests() -> None:
    tasks = CodingScenario().tasks(Split.TRAIN, 3, 5_000)
    requests = {task.instruction.lower() for task in tasks}
    for family in FAMILIES:
        for split in (*HELD_OUT, Split.OUT_OF_VOCABULARY):
            for frame in family.phrases.frames(split):
                rarest = max(re.split(r"\{\w+\}", frame.rstrip(".?").lower()), key=len)
                for request in requests:
                    if rarest in request:
                        assert not re.search(as_pattern(frame), request), frame


def test_frames_of_the_splits_differ() -> None:
    for family in FAMILIES:
        seen: set[str] = set()
        for split in Split:
            frames = set(family.phrases.frames(split))
            assert not frames & seen
            seen |= frames


@pytest.mark.parametrize("split", list(Split))
def test_no_name_is_a_word_of_a_request(split: Split) -> None:
    frames = {f for family in FAMILIES for s in Split for f in family.phrases.frames(s)}
    forms = {form for kind in REFERENCES.values() for s in Split for form in kind[s]}
    assert not NAMES[split].words() & (words(frames) | words(forms))


def test_names_of_the_splits_differ() -> None:
    seen: set[str] = set()
    for names in some(NAMES.values()):
        assert not names.words() & seen
        seen |= names.words()


@pytest.mark.slow
@pytest.mark.parametrize("split", [s for s in Split if s is not Split.TRAIN])
def test_no_held_out_name_occurs_in_training_projects(split: Split) -> None:
    text = "\n".join(
        task.instruction + str(task.initial_state) + str(task.goal)
        for task in CodingScenario().tasks(Split.TRAIN, 5, 1_000)
    )
    seen = set(re.findall(r"[a-z]+", text.lower()))
    names = NAMES[split]
    assert not seen & {*names.packages, *names.nouns, *names.adjectives}


@pytest.mark.slow
def test_every_family_has_hundreds_of_surface_forms() -> None:
    tasks = CodingScenario().tasks(Split.TRAIN, 1, 19 * 300)
    for family in FAMILIES:
        ours = {task.instruction for task in tasks if task.family == family.name}
        assert len(ours) > 200, family.name


def test_alternatives_expand_to_their_product() -> None:
    assert expand(["[a|b] x [c|]"]) == ["a x c", "a x", "b x c", "b x"]
