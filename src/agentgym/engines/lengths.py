"""Choose a run's defaults: answer and episode lengths, timeouts, concurrency."""

import json
import math
from collections.abc import Sequence

from agentgym.core.agent import is_command
from agentgym.core.config import SMALL_ANSWER, SMALL_TIMEOUT_S, TrainingConfig
from agentgym.core.settings import LONGEST_S
from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec
from agentgym.engines.settings import context_length
from agentgym.errors import AgentGymError
from agentgym.models.chat_template import form_of
from agentgym.models.folder import is_small
from agentgym.models.reference import is_remote
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of

_LOOKED_AT = 100
_CHARACTERS = 3.0
"""Assumed characters per token; low, since English and JSON have about four."""
_RESULT_TOKENS = 256
"""Assumed tokens of a tool's result; most results are one line."""
_OWN_PROMPT_TOKENS = 1024
"""Assumed tokens in the prompt of a user's own agent; the real number is unknown."""
_ANSWER = 1024
"""Default token limit of an answer without reasoning. A tool call with a page of text
as its argument fits. TRL and verl have the same limit in their defaults or examples."""
_REASONED = 4096
"""Default token limit of an answer with reasoning. Reasoning takes 500 to 3,000 tokens;
Qwen3's report (arXiv:2505.09388) gives accuracy for limits of 1,024 to 32,768."""
_TIMEOUT_S = 600.0
"""Timeout of a rollout whose answers have up to 1,024 tokens. It grows with the token
limit of answers. A rollout took 38 to 117 s with a model of 0.5 billion parameters on
two cores (docs/models.md)."""
CPU_IN_FLIGHT = 32
"""Rollouts that run at once with a large model on a CPU; more of them would only wait.
"""
_OF_CONTEXT = 2
"""An answer takes at most half of the context; the prompt needs the other half."""


def paced(config: TrainingConfig, *, in_flight: int | None = None) -> TrainingConfig:
    """Fill in unset limits of answers, rollouts and concurrency to fit the model.

    ``in_flight`` is the default of ``concurrency``, the number of rollouts that run at
    once. If it is given, ``workers`` is 1 by default, and the default timeout of a
    rollout is the long one, even for a small model.
    """
    answer = config.max_tokens or usual_answer(config)
    # Dozens of programs at once take long to start, e.g. Python with a client.
    is_slow = (
        in_flight is not None
        or is_command(config.agent.reference or "")
        or not _is_small(config)
    )
    timeout = _TIMEOUT_S * max(1.0, answer / _ANSWER) if is_slow else SMALL_TIMEOUT_S
    return config.replaced(
        max_tokens=answer,
        rollout_timeout_s=config.rollout_timeout_s or min(timeout, LONGEST_S),
        concurrency=config.concurrency or in_flight,
        workers=config.workers or (1 if in_flight else None),
        max_episode_tokens=config.episode_tokens,
    )


def paced_for_servers(config: TrainingConfig) -> TrainingConfig:
    """Fill in unset limits of answers and rollouts for a model behind a server."""
    return config.replaced(
        max_tokens=config.max_tokens or _ANSWER,
        rollout_timeout_s=config.rollout_timeout_s or _TIMEOUT_S,
    )


def usual_answer(config: TrainingConfig) -> int:
    """Return the default token limit of an answer (``max_tokens``) for the model."""
    wanted = _wanted_answer(config)
    if is_remote(config.model):
        return wanted
    return min(wanted, context_length(config) // _OF_CONTEXT)


def answer_words(given: TrainingConfig, found: TrainingConfig) -> str:
    """Describe the limits of answers and rollouts for a run's plan."""
    words = f"at most {found.answer_tokens:,} tokens each"
    if given.max_tokens is None and found.answer_tokens < _wanted_answer(given):
        words += f", half of the context of {context_length(given):,} tokens"
    hangs = "a rollout is ended as hanging after"
    return f"{words}; {hangs} {found.timeout_s:,.0f} s without progress"


def _wanted_answer(config: TrainingConfig) -> int:
    if _is_small(config):
        return SMALL_ANSWER
    return _REASONED if _reasons(config) else _ANSWER


def _is_small(config: TrainingConfig) -> bool:
    return not is_remote(config.model) and is_small(config.model)


def _reasons(config: TrainingConfig) -> bool:
    """Return whether the model reasons before it answers; False if unknown."""
    if config.thinking != "auto":
        return config.thinking == "on"
    if is_remote(config.model):
        return False
    return form_of(config.model, config.template).reasons


def longest_episode(config: TrainingConfig) -> int:
    """Estimate the tokens of the longest episode that a run will train on.

    The estimate is the scenario's longest prompt plus the answers and tool results of
    ``max_turns`` model calls, but at most ``max_episode_tokens``. If this process
    cannot load the scenario, return ``max_episode_tokens``.
    """
    most = config.episode_tokens
    try:
        scenario = get_scenario(config.scenario)
    except AgentGymError:
        return most
    try:
        answer = config.max_tokens or usual_answer(config)
        turns = scenario.max_turns * (answer + _RESULT_TOKENS)
        own = _OWN_PROMPT_TOKENS * (config.agent.reference is not None)
        return min(most, _longest_prompt(scenario, config.seed) + own + turns)
    except Exception:  # noqa: BLE001 - the scenario's own code; others report it
        return most
    finally:
        scenario.close()


def _longest_prompt(scenario: Scenario, seed: int) -> int:
    usual = scenario.tools()
    longest = max(
        len(task.instruction) + _written(usual or tools_of(scenario, task))
        for task in make_tasks(scenario, Split.TRAIN, seed, _LOOKED_AT)
    )
    return math.ceil((len(scenario.system_prompt()) + longest) / _CHARACTERS)


def _written(tools: Sequence[ToolSpec]) -> int:
    """Return the number of characters of the tools' JSON in a request."""
    return len(json.dumps([spec.to_openai() for spec in tools]))
