"""Warn if a reward reads the agent's answer and training ignores the answer's text.

By default, the model learns only from the tokens of its tool calls.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from agentgym.core.components import Component
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.tool_tasks.scenario import ToolScenario

_MOST_FUNCTIONS = 200


def answer_notes(scenario: Scenario, trainable: Mapping[str, bool]) -> list[str]:
    """Return a warning if the reward reads answers but the loss excludes them."""
    if trainable.get(Component.OUTPUT_GENERATION, False):
        return []
    if isinstance(scenario, ToolScenario):
        what = "the check function reads `answer`"
        found = scenario.check is not None and _reads(scenario.check, {"answer"})
    else:
        what = "calculate_reward reads the answer"
        score, own = scenario.calculate_reward, type(scenario)
        found = _reads(score, {"answer"}, own, by_key=False) or _reads(
            score, {"model_calls", "content"}, own, by_key=False
        )
    if not found:
        return []
    why = "and the model does not learn from the text of its answers"
    return [f"{what}, {why}; to train that too: --set train_tokens=all"]


def _reads(
    function: Callable[..., Any],
    names: set[str],
    owner: type | None = None,
    *,
    by_key: bool = True,
) -> bool:
    """Return whether a function, or one of its package that it calls, has all names."""
    seen: set[str] = set()
    for code in _codes(function, owner):
        seen.update(code.co_names)
        if by_key:
            seen.update(each for each in code.co_consts if isinstance(each, str))
    return names <= seen


def _codes(function: Callable[..., Any], owner: type | None) -> Iterator[CodeType]:
    """Yield the code of a function and of those that it calls in its package."""
    package = _package(function)
    waiting: list[Any] = [function]
    done: set[CodeType] = set()
    while waiting and len(done) < _MOST_FUNCTIONS:
        found = inspect.unwrap(waiting.pop())
        found = getattr(found, "func", found)  # functools.partial
        if not isinstance(found, FunctionType):
            found = getattr(found, "__func__", None) or type(found).__call__
        if not isinstance(found, FunctionType) or found.__code__ in done:
            continue
        nested = [found.__code__]
        while nested:
            code = nested.pop()
            done.add(code)
            yield code
            nested += [each for each in code.co_consts if isinstance(each, CodeType)]
            for name in code.co_names:
                named = found.__globals__.get(name) or getattr(owner, name, None)
                if isinstance(named, FunctionType) and _package(named) == package:
                    waiting.append(named)


def _package(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__module__", "")).partition(".")[0]
