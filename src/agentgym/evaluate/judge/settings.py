"""Check a judge's settings before a run starts, and describe the judge's price."""

import math
from collections.abc import Callable
from importlib import resources

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Judging, Ledger
from agentgym.errors import UsageError
from agentgym.evaluate.judge.group_judge import MOST_ANSWER, GroupJudge, Ranker
from agentgym.evaluate.judge.prompt import MOST_CHARACTERS
from agentgym.evaluate.metrics import Prices
from agentgym.evaluate.progress import Progress
from agentgym.models.reference import is_remote, resolve_model
from agentgym.rollout.located import rubric_text

_SETTINGS = ("judge_rubric", "judge_price_in", "judge_price_out", "judge_max_cost")
_CHARACTERS = 4
"""Assumed characters per token, to estimate the price."""


def rubric_of(config: TrainingConfig) -> str:
    """Return the judge's instructions: the user's, or the built-in ones.

    Raises:
        UsageError: The file with the instructions cannot be read.
    """
    if given := rubric_text(config.judge_rubric):
        return given
    package = resources.files("agentgym.evaluate.judge")
    return package.joinpath("rubric.txt").read_text(encoding="utf-8")


def prices_of(config: TrainingConfig) -> Prices | None:
    """Return the prices of a judge's tokens; None if unknown.

    Raises:
        UsageError: Only one of the two prices is set.
    """
    read, written = config.judge_price_in, config.judge_price_out
    if (read is None) != (written is None):
        raise UsageError("Give both judge_price_in and judge_price_out, or neither.")
    if read is None or written is None:
        return None
    return Prices(prompt=read, response=written)


def check_judge(config: TrainingConfig) -> None:
    """Check the settings of a judge, without sending a request.

    Raises:
        UsageError: A setting is unusable; the message has the setting and the fix.
    """
    prices = prices_of(config)
    if config.judge is None:
        given = [name for name in _SETTINGS if getattr(config, name) not in (None, "")]
        if given:
            raise UsageError(
                f"{', '.join(given)} without a judge: name its model with --judge, as "
                "in --judge openai:gpt-4.1-mini."
            )
        return
    if not is_remote(config.judge):
        raise UsageError(
            f"judge = {config.judge!r} is not a model that a server answers for. Give "
            "PROVIDER:MODEL, as openai:gpt-4.1-mini, or an address, "
            "http://host:8000/v1#MODEL."
        )
    if config.deterministic:
        raise UsageError(
            "A judge's answers differ from run to run, so that a run with one cannot "
            "be deterministic: leave out --judge or --deterministic."
        )
    if config.judge_max_cost is not None and prices is None:
        raise UsageError(
            f"judge_max_cost = {config.judge_max_cost:g} needs the price of the "
            "judge's tokens: give judge_price_in and judge_price_out, in $ per million."
        )
    rubric_of(config)
    resolve_model(config.judge)


def open_judge(
    config: TrainingConfig,
    ledger: Ledger,
    progress: Progress,
    *,
    beat: Callable[[], None] = lambda: None,
) -> Ranker:
    """Create a run's judge, which counts its requests in ``ledger.judging``.

    Args:
        config: The run's settings.
        ledger: The counts of the run's model calls and of its judge.
        progress: Receives the phase ``judging``, and warnings.
        beat: Called every half second while waiting; may raise to stop waiting.

    Returns:
        The judge; without a judge in the settings, a ranker that changes no rewards.

    Raises:
        UsageError: A setting is unusable.
    """
    if config.judge is None:
        return Ranker()
    if ledger.judging is None:
        ledger.judging = Judging(model=config.judge)
    return GroupJudge(
        resolve_model(config.judge),
        rubric_of(config),
        ledger.judging,
        weight=config.judge_weight,
        prices=prices_of(config),
        max_cost=config.judge_max_cost,
        begin=lambda count: progress.phase("judging", count),
        done=progress.rollout_done,
        beat=beat,
        warn=lambda text: progress.warned([text]),
    )


def plan_words(config: TrainingConfig) -> str:
    """Describe how often a run may ask its judge, and the price.

    Empty without a judge in the settings.
    """
    if config.judge is None:
        return ""
    requests = math.ceil(config.episodes / config.group_size)
    rubric = len(rubric_of(config))
    read = (MOST_CHARACTERS + rubric) // _CHARACTERS
    prices = prices_of(config)
    text = (
        f"{config.judge} ranks attempts that the check accepts, which are sent to it: "
        f"at most {requests:,} requests of at most {read:,} tokens, answers of at most "
        f"{MOST_ANSWER:,}"
    )
    if prices is None:
        return f"{text}; price not known: give judge_price_in and judge_price_out"
    each = (read * prices.prompt + MOST_ANSWER * prices.response) / 1e6
    text += f"; at most ${requests * each:,.2f}"
    if config.judge_max_cost is not None:
        text += f", and judging ends at ${config.judge_max_cost:,.2f}"
    return text


def judging_words(record: Judging) -> str:
    """Describe a judge's counts, its agreement with the scenario, and its cost."""
    kept = "".join(f"; {why}: {n:,}" for why, n in record.kept.most_common())
    text = (
        f"Judge {record.model}: {record.judged:,} of {record.groups:,} groups of "
        f"attempts were judged{kept}."
    )
    if record.agreement is not None:
        text += (
            f" It agrees with the check in {record.agreement:.0%} of {record.pairs:,} "
            "pairs of an accepted and a rejected attempt."
        )
    counted = f", {record.estimated:,} of them estimated" * bool(record.estimated)
    cost = "at a price not known" if record.cost is None else f"${record.cost:,.2f}"
    tokens = record.prompt_tokens + record.response_tokens
    return f"{text} {record.requests:,} requests{counted}, {tokens:,} tokens, {cost}."
