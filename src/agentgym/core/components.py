"""Label each token of a model's response, e.g. as tool selection or reasoning.

These labels are called components. A tool format (:mod:`agentgym.core.formats`) splits
a response into spans with their components. A token has those of all characters that it
covers, and is trained only if *all* of them are trainable.

Tool selection is more than the tool's name: the first token, the marks that open and
close a call, and the end token decide to call, go on or stop. If only the name were
trained, the decision to answer without a call would get no gradient, and the policy
would stop calling tools. A malformed call belongs to both components of a call, and is
trained if both are trainable, so that the policy unlearns it.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

TrainTokens = Literal["calls", "calls+reasoning", "all"]
"""Which tokens of its responses a model learns from; see :func:`components_of`."""
TRAIN_TOKENS: tuple[TrainTokens, ...] = get_args(TrainTokens)


class Component(StrEnum):
    """The kind of a part of a response.

    Attributes:
        TOOL_SELECTION: The decision to call a tool or to answer, and the choice of the
            tool.
        PARAMETER_SELECTION: The arguments of a tool call.
        REASONING: The model's reasoning before it answers.
        OUTPUT_GENERATION: All other text, e.g. an answer to the user.
    """

    TOOL_SELECTION = "tool_selection"
    PARAMETER_SELECTION = "parameter_selection"
    REASONING = "reasoning"
    OUTPUT_GENERATION = "output_generation"


Components = frozenset[Component]

TOOL: Components = frozenset({Component.TOOL_SELECTION})
PARAMETERS: Components = frozenset({Component.PARAMETER_SELECTION})
REASONING: Components = frozenset({Component.REASONING})
OUTPUT: Components = frozenset({Component.OUTPUT_GENERATION})
MALFORMED: Components = TOOL | PARAMETERS


class Span(NamedTuple):
    """A range of characters of a response, labelled with its ``components``."""

    start: int
    end: int
    components: Components


def label_tokens(
    pieces: Sequence[str], spans: Iterable[Span], *, ended: bool
) -> list[Components]:
    """Return the components (labels) of each token of a response.

    ``pieces`` are the texts of the tokens. A token that is only a part of a character
    has an empty text, and takes the components of the next character. The end token of
    a response that was not cut (``ended``) counts as tool selection.
    """
    by_character: list[Components] = [OUTPUT] * sum(map(len, pieces))
    for span in spans:
        width = span.end - span.start
        by_character[span.start : span.end] = [span.components] * width
    labels: list[Components] = []
    start = 0
    for piece in pieces:
        end = start + max(1, len(piece))
        found = frozenset[Component]().union(*by_character[start:end])
        labels.append(found or OUTPUT)
        start += len(piece)
    if labels:
        decision = _decision(pieces, by_character)
        if not labels[decision] & REASONING:
            labels[decision] = TOOL
        labels[-1] = TOOL if ended else labels[-1]
    return labels


def is_trained(components: Components, trainable: Mapping[str, bool]) -> bool:
    """Return whether the loss covers a token: all of its labels must be trainable."""
    return all(trainable.get(component, False) for component in components)


def components_of(tokens: TrainTokens) -> dict[str, bool]:
    """Return for each component (label) whether ``train_tokens=tokens`` trains it."""
    return {
        "tool_selection": True,
        "parameter_selection": True,
        "reasoning": tokens != "calls",
        "tool_execution": False,
        "output_generation": tokens == "all",
    }


def tokens_name(trainable: Mapping[str, bool]) -> str:
    """Return the ``train_tokens`` that trains just these components, or their names."""
    trained = {name for name in Component if trainable.get(name, False)}
    for tokens in TRAIN_TOKENS:
        if trained == {name for name in Component if components_of(tokens)[name]}:
            return tokens
    return ", ".join(name for name in Component if name in trained) or "none"


def _decision(pieces: Sequence[str], by_character: Sequence[Components]) -> int:
    """Return the index of the first non-blank token outside of reasoning."""
    start = 0
    for index, piece in enumerate(pieces):
        covered = by_character[start : start + len(piece)]
        start += len(piece)
        if piece.strip() and not any(label & REASONING for label in covered):
            return index
    return len(pieces) - 1
