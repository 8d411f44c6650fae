"""Components: label each token of a response with its part, e.g. tool name, arguments.

A tool format splits a response into spans (:mod:`agentgym.core.formats`). A token
belongs to the components of all characters that it covers. It is trained only if *all*
of them are trainable, so a token across a boundary is never half trained.

Tool selection is more than the tool's name. The first token of a response decides
between a call and an answer; the opening mark decides to call after some text; the
closing mark and the end token decide to stop or go on. If only the name were trained,
failing calls would become less likely while "answer instead" got no gradient, and the
policy would stop calling tools.

A call that does not parse has no boundary between name and arguments. Its tokens belong
to both components: they are trained if both are trainable (so that the policy unlearns
malformed calls) and masked otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

TrainTokens = Literal["calls", "calls+reasoning", "all"]
"""The tokens of its own responses that a model learns from."""
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
    """A range of a response's text and the components that it belongs to."""

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
        spans: The response's spans, as its tool format read them.
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
    """Return the trained components for a value of ``train_tokens``.

    ``calls`` covers the choice of a tool and its arguments; ``calls+reasoning`` adds
    the text between reasoning marks; ``all`` is every token that the model wrote.
    Results of tools are never trained: the model did not write them.
    """
    return {
        "tool_selection": True,
        "parameter_selection": True,
        "reasoning": tokens != "calls",
        "tool_execution": False,
        "output_generation": tokens == "all",
    }


def tokens_name(trainable: Mapping[str, bool]) -> str:
    """Return the value of ``train_tokens`` with these components, or their names.

    A scenario that trains arguments alone, for instance, has no such value.
    """
    trained = {name for name in Component if trainable.get(name, False)}
    for tokens in TRAIN_TOKENS:
        if trained == {name for name in Component if components_of(tokens)[name]}:
            return tokens
    return ", ".join(name for name in Component if name in trained) or "none"


def _decision(pieces: Sequence[str], by_character: Sequence[Components]) -> int:
    """Return the index of the first token with text that is not reasoning."""
    start = 0
    for index, piece in enumerate(pieces):
        covered = by_character[start : start + len(piece)]
        start += len(piece)
        if piece.strip() and not any(label & REASONING for label in covered):
            return index
    return len(pieces) - 1
