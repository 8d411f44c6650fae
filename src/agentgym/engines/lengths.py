"""How long the episodes of a scenario may become, in tokens."""

import json
import math
from collections.abc import Sequence

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec
from agentgym.errors import AgentGymError
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of

_LOOKED_AT = 100
_CHARACTERS = 3.0
"""Of a token, at least: English and JSON have about four."""
_RESULT_TOKENS = 256
"""Of what a tool returns; most return a line."""
_OWN_PROMPT_TOKENS = 1024
"""Of an agent's own prompt, which only the agent knows."""


def longest_episode(config: TrainingConfig) -> int:
    """Estimate the tokens of the longest episode that a run will train on.

    That is the longest prompt of the scenario with all answers and tool results of
    ``max_turns`` model calls, at most ``max_episode_tokens``. Where the scenario cannot
    be loaded here, it is ``max_episode_tokens``.
    """
    most = config.max_episode_tokens
    try:
        scenario = get_scenario(config.scenario)
    except AgentGymError:
        return most
    try:
        turns = scenario.max_turns * (config.max_tokens + _RESULT_TOKENS)
        own = _OWN_PROMPT_TOKENS * (config.agent is not None)
        return min(most, _longest_prompt(scenario, config.seed) + own + turns)
    except Exception:  # noqa: BLE001 - the scenario's own code; others say what it is
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
    """Return the characters of tools as a request has them."""
    return len(json.dumps([spec.to_openai() for spec in tools]))
