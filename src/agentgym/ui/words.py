"""Words and curves that the terminal and the reports share."""

from itertools import pairwise

_SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int) -> str:
    """Draw values over time as a curve of at most ``width`` block characters."""
    if len(values) < 2 or width < 2:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_SPARKS[round((mean - low) * scale)] for mean in means)


def trained_words(tokens: str) -> str:
    """Describe the tokens that a model learns from, a value of ``train_tokens``."""
    return {
        "calls": "tool calls: the choice of a tool and its arguments, no other text",
        "calls+reasoning": "tool calls and reasoning; the text of answers is left out",
        "all": "all that the model writes: calls, reasoning and the text of answers",
    }.get(tokens, tokens)
