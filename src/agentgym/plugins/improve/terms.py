"""Terms: the goal and the cost limit of ``improve``, checked before it starts."""

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec

from agentgym.core.config import TrainingConfig
from agentgym.core.machines import HERE
from agentgym.core.openai import NO_KEY
from agentgym.core.prices import FREE, Prices
from agentgym.core.task import Split
from agentgym.errors import MissingExtraError, UsageError
from agentgym.evaluate.criteria import Gate
from agentgym.models.reference import (
    PROVIDERS,
    is_on_loopback,
    is_remote,
    key_variable,
    require_key,
    resolve_model,
)
from agentgym.rollout.inspection import AgentReport
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import held_out_sets, make_tasks

BIGGER = "Qwen/Qwen2.5-7B-Instruct"


@dataclass(frozen=True)
class Terms:
    """The goal, and the money that reaching it may cost.

    Attributes:
        goal: The metric to raise on held-out tasks, e.g. the share of solved tasks, and
            the least value to reach.
        max_cost: Upper limit on the US dollars of everything together; by default
            nothing is spent.
        prices: Prices of the agent's model if a server runs it; None if not given.
        reflection: The model that writes better prompts. If None, the search for
            better prompts is left out.
        reflection_prices: Prices of the reflection model; None if not given.
        searched: Upper limit on the rollouts of the search for better prompts.
        bigger: The model for which a rented GPU is quoted.
        yes: Whether to spend up to ``max_cost`` without asking.
    """

    goal: Gate
    max_cost: float = 0.0
    prices: Prices | None = None
    reflection: str | None = None
    reflection_prices: Prices | None = None
    searched: int = 150
    bigger: str = BIGGER
    yes: bool = False


def read_goal(text: str) -> Gate:
    """Parse a goal such as ``pass_1=0.9``.

    Raises:
        UsageError: The metric is unknown, or its value is not a number in 0..1, or is
            0, which any agent meets.
    """
    if "=" not in text:
        raise UsageError(
            f"--goal {text}: give a share and its least value, as in pass_1=0.9."
        )
    goal = Gate.parse(text)
    if goal.least == 0:
        raise UsageError(f"--goal {text} is met by any agent, also by one that fails.")
    return goal


def own_model(report: AgentReport) -> str | None:
    """Return the model that the agent itself uses, such as ``openai:gpt-4o-mini``.

    None if the model is not known, if the agent uses several models, or if the key of
    the model's provider is not set.
    """
    found = {_model_of(role.model) for role in report.roles if role.model}
    model = found.pop() if len(found) == 1 else None
    if model is None:
        return None
    key = os.environ.get(key_variable(model), "").strip()
    return None if key in ("", NO_KEY) else model


def _model_of(words: str) -> str | None:
    """Return ``PROVIDER:MODEL`` for a text such as ``ChatOpenAI gpt-4o``, or None."""
    *kind, name = words.split()
    for provider in PROVIDERS:
        if name.lower().startswith((f"{provider}:", f"{provider}/")):
            return f"{provider}:{name[len(provider) + 1 :]}"
    known = re.findall(rf"(?i){'|'.join(PROVIDERS)}", " ".join(kind))
    return f"{known[0].lower()}:{name}" if known else None


def check_terms(terms: Terms, config: TrainingConfig, scenario: Scenario) -> None:
    """Raise an error if the terms or settings cannot work; this costs nothing."""
    if config.gpu not in HERE:
        raise UsageError(
            f"--gpu {config.gpu}: the ladder trains on this machine (auto, local, "
            "none), and only quotes rented ones. Train there with `agentgym train "
            f"--gpu {config.gpu}`."
        )
    if config.time is not None:
        raise UsageError(
            "A time sizes held-out tasks to itself, and each rung is to be measured on "
            "the same ones: leave it out, and limit --episodes."
        )
    for split in (Split.TRAIN, Split.VALIDATION):
        make_tasks(scenario, split, config.seed, 1)
    held_out_sets(scenario, config.seed, config.test_tasks)
    if is_remote(config.model):
        _check_model(config.model, terms.prices, "--price-in and --price-out")
    if terms.reflection is None:
        if terms.reflection_prices is not None:
            raise UsageError(
                "--reflection-price-in and --reflection-price-out without a model: "
                "name it with --reflection PROVIDER:MODEL."
            )
        return
    if not is_remote(terms.reflection):
        raise UsageError(
            f"--reflection {terms.reflection} is not a model that a server answers "
            "for. Give PROVIDER:MODEL, as openai:gpt-4.1, or an address, "
            "http://host:8000/v1#MODEL."
        )
    if find_spec("gepa") is None:
        raise MissingExtraError("improve", "The search for better prompts")
    options = "--reflection-price-in and --reflection-price-out"
    _check_model(terms.reflection, terms.reflection_prices, options)


def _check_model(model: str, prices: Prices | None, options: str) -> None:
    endpoint = resolve_model(model)
    if prices is None and not is_on_loopback(model):
        raise UsageError(
            f"{model} may cost money, and the cap needs its price: give {options}, in "
            "$ per million tokens; 0 for a server of your own."
        )
    require_key(endpoint)


def prices_of(model: str, prices: Prices | None) -> Prices:
    """Return ``prices``; zero prices if the model is local or ``prices`` is None."""
    return prices if prices is not None and is_remote(model) else FREE
