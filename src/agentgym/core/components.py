"""Components: which part of a response each of its tokens belongs to.

A form of tool calls reads a response into spans (:mod:`agentgym.core.formats`). Every
token belongs to the components of the characters it covers, and is trained only if
*all* of them are trainable, so a token that straddles a boundary is never trained by
half.

Tool selection is more than the tool's name: the first token of a response is the
decision to call a tool or to answer; the mark that opens a call is the decision to
call after some text; the mark that closes it and the end token are the decision to
stop or to go on. If only the name were trained, failing calls would be pushed down
while "answer instead" got no gradient, and calling would die out.

A call that does not parse has no boundary between name and arguments. Its tokens
belong to both components: they are trained where both are trainable (so that the
policy can unlearn malformed calls) and masked otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

TrainTokens = Literal["calls", "calls+reasoning", "all"]
"""Which of its own tokens a model learns from."""
TRAIN_TOKENS: tuple[TrainTokens, ...] = get_args(TrainTokens)


class Component(StrEnum):
    """A kind of span in a response."""

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
    """A stretch of a response's text and the components that it belongs to."""

    start: int
    end: int
    components: Components


def label_tokens(
    pieces: Sequence[str], spans: Iterable[Span], *, ended: bool
) -> list[Components]:
    """Return the components of each token of a response.

    Args:
        pieces: The text of each token, in order, special tokens included; they join
            to the response. An empty piece (a byte of a character that a later token
            completes) takes the components of the next piece.
        spans: The response's spans, as a form read them.
        ended: Whether the last token is an end token, not one cut off by a limit.

    Returns:
        One non-empty set per token: the components of the characters it covers.
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
    """Return whether the loss covers a token of these components."""
    return all(trainable.get(component, False) for component in components)


def components_of(tokens: TrainTokens) -> dict[str, bool]:
    """Return which components the loss covers for a value of ``train_tokens``.

    ``calls`` are the choice of a tool and its arguments; ``calls+reasoning`` adds what
    stands between reasoning marks; ``all`` is every token that the model wrote.
    Answers of tools are never trained: the model did not write them.
    """
    return {
        "tool_selection": True,
        "parameter_selection": True,
        "reasoning": tokens != "calls",
        "tool_execution": False,
        "output_generation": tokens == "all",
    }


def tokens_name(trainable: Mapping[str, bool]) -> str:
    """Return the value of ``train_tokens`` that trains these components.

    Where no value does, as for a scenario that trains arguments alone, it is the names
    of the components.
    """
    trained = {name for name in Component if trainable.get(name, False)}
    for tokens in TRAIN_TOKENS:
        if trained == {name for name in Component if components_of(tokens)[name]}:
            return tokens
    return ", ".join(name for name in Component if name in trained) or "none"


def _decision(pieces: Sequence[str], by_character: Sequence[Components]) -> int:
    """Return the token that decides: the first with text, none of it reasoning."""
    start = 0
    for index, piece in enumerate(pieces):
        covered = by_character[start : start + len(piece)]
        start += len(piece)
        if piece.strip() and not any(label & REASONING for label in covered):
            return index
    return len(pieces) - 1
