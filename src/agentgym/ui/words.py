"""Format estimates and results as text, in the same way for terminal and reports."""

from contextlib import suppress
from itertools import pairwise

from agentgym.core.agent import COMMAND, is_command
from agentgym.core.config import agent_reference
from agentgym.errors import AgentGymError
from agentgym.scenarios.packs import is_tasks_file
from agentgym.train.result import TrainingResult

_SPARKS = "▁▂▃▄▅▆▇█"


def weights_words(result: TrainingResult) -> str:
    """Return a sentence on the training step from which the saved weights come."""
    if not result.steps:
        return "The weights are those of the warm start: no step came after it."
    if result.weights_step == 0:
        return (
            "The weights are those of the warm start: no later ones did better on "
            "validation tasks beyond chance."
        )
    if result.weights_step == result.steps:
        return f"The weights are those of the last step, {result.steps}."
    return (
        f"The weights are those of step {result.weights_step}, which did best on "
        "validation tasks."
    )


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


def use_of(result: TrainingResult) -> tuple[str, str]:
    """Return example code that uses the trained agent: language, then text."""
    reference = agent_reference(result.config)
    if reference is not None and is_command(reference):
        return "sh", (
            f"agentgym serve {result.saved.name} --port 8000\n"
            "OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none "
            f"{reference.removeprefix(COMMAND)}\n"
        )
    return "python", (
        "from agentgym import TrainedAgent\n"
        f'agent = TrainedAgent.load("{result.saved.name}").{_exported(result)}\n'
    )


def _exported(result: TrainingResult) -> str:
    """Return the method call that exports a trained agent, as in ``to_langchain()``.

    The call has the argument ``tools=[...]`` if the user must pass the functions to
    run, because the tools came from a tasks file or each task had its own tools.
    """
    source = str(result.config.get("scenario", ""))
    has_none = is_tasks_file(source) and "tools=%40" not in source
    with suppress(AgentGymError):  # it was removed since
        spec = result.trained.spec
        has_none = has_none or (spec.agent is None and not spec.tools)
    return f"{result.export}({'tools=[...]' if has_none else ''})"


def trained_words(tokens: str) -> str:
    """Describe the tokens that a model learns from, a value of ``train_tokens``."""
    return {
        "calls": "tool calls: the choice of a tool and its arguments, no other text",
        "calls+reasoning": "tool calls and reasoning; the text of answers is left out",
        "all": "all that the model writes: calls, reasoning and the text of answers",
    }.get(tokens, tokens)
