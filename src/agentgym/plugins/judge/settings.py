"""Check a judge's settings before a run starts, and describe the judge's price."""

import math
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Judging, Ledger
from agentgym.core.prices import Prices
from agentgym.errors import UsageError, unreadable
from agentgym.evaluate import events
from agentgym.evaluate.numbers import percent
from agentgym.models.reference import is_remote, resolve_model
from agentgym.plugins.judge.group import JudgeSettings
from agentgym.plugins.judge.group_judge import MOST_ANSWER, GroupJudge
from agentgym.plugins.judge.prompt import MOST_CHARACTERS

# Assumed characters per token, to estimate the price.
_CHARACTERS = 4
_NEEDS_MODEL = ("rubric", "price_in", "price_out", "max_cost")
_MOST_RUBRIC = 2**16


def rubric_text(given: str) -> str:
    """Return the text of a judge's rubric, from a file or as given."""
    path = Path(given).expanduser()
    if not given or "\n" in given or (" " in given and not path.suffix):
        return given
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"judge.rubric = {given!r} cannot be read: {unreadable(error)}. Give a "
            "text file that says in plain sentences which attempt is better."
        ) from None
    if not text.strip() or len(text) > _MOST_RUBRIC:
        raise UsageError(
            f"judge.rubric = {given!r} holds {len(text):,} characters; a rubric "
            f"must have text, and at most {_MOST_RUBRIC:,} characters."
        )
    return text if "\n" in text else f"{text}\n"


def rubric_of(judge: JudgeSettings) -> str:
    """Return the judge's instructions: the user's, or the built-in ones."""
    if given := rubric_text(judge.rubric):
        return given
    package = resources.files("agentgym.plugins.judge")
    return package.joinpath("rubric.txt").read_text(encoding="utf-8")


def prices_of(judge: JudgeSettings) -> Prices | None:
    """Return the prices of a judge's tokens; None if unknown."""
    read, written = judge.price_in, judge.price_out
    if (read is None) != (written is None):
        raise UsageError("Give both judge.price_in and judge.price_out, or neither.")
    if read is None or written is None:
        return None
    return Prices(prompt=read, response=written)


def is_judged(config: TrainingConfig) -> bool:
    """Return whether a run has a judge."""
    return JudgeSettings.of(config).model is not None


def located(config: TrainingConfig) -> TrainingConfig:
    """Return settings with the text of a judge's rubric instead of the file's path."""
    if not JudgeSettings.of(config).rubric:
        return config
    text = rubric_text(JudgeSettings.of(config).rubric)
    return config.replaced(**{"judge.rubric": text})


def check_judge(config: TrainingConfig) -> None:
    """Check the settings of a judge, without sending a request."""
    judge = JudgeSettings.of(config)
    given = [name for name in _NEEDS_MODEL if getattr(judge, name) not in (None, "")]
    if judge.model is None:
        if given:
            raise UsageError(
                f"judge.{', judge.'.join(given)} without a judge: name its model with "
                "--judge, as in --judge openai:gpt-4.1-mini."
            )
        return
    prices = prices_of(judge)
    if not is_remote(judge.model):
        raise UsageError(
            f"judge = {judge.model!r} is not a model that a server answers for. Give "
            "PROVIDER:MODEL, as openai:gpt-4.1-mini, or an address, "
            "http://host:8000/v1#MODEL."
        )
    if config.deterministic:
        raise UsageError(
            "A judge's answers differ from run to run, so that a run with one cannot "
            "be deterministic: leave out --judge or deterministic."
        )
    if judge.max_cost is not None and prices is None:
        raise UsageError(
            f"judge.max_cost = {judge.max_cost:g} needs the price of the "
            "judge's tokens: give judge.price_in and judge.price_out, in $ per million."
        )
    rubric_of(judge)
    resolve_model(judge.model)


def open_judge(
    config: TrainingConfig,
    ledger: Ledger,
    progress: events.Observer,
    *,
    beat: Callable[[], None],
) -> GroupJudge | None:
    """Create a run's judge, which counts its requests in ``ledger.judging``."""
    judge = JudgeSettings.of(config)
    if judge.model is None:
        return None
    if ledger.judging is None:
        ledger.judging = Judging(model=judge.model)
    return GroupJudge(
        resolve_model(judge.model),
        rubric_of(judge),
        ledger.judging,
        weight=judge.weight,
        prices=prices_of(judge),
        max_cost=judge.max_cost,
        progress=progress,
        beat=beat,
    )


def plan_words(config: TrainingConfig) -> str:
    """Describe how often a run may ask its judge, and the price; "" without one."""
    judge = JudgeSettings.of(config)
    if judge.model is None:
        return ""
    requests = math.ceil(config.episodes / config.group_size)
    rubric = len(rubric_of(judge))
    read = (MOST_CHARACTERS + rubric) // _CHARACTERS
    prices = prices_of(judge)
    text = (
        f"{judge.model} ranks attempts that the check accepts, which are sent to it: "
        f"at most {requests:,} requests of at most {read:,} tokens, answers of at most "
        f"{MOST_ANSWER:,}"
    )
    if prices is None:
        return f"{text}; price not known: give judge.price_in and judge.price_out"
    each = (read * prices.prompt + MOST_ANSWER * prices.response) / 1e6
    text += f"; at most ${requests * each:,.2f}"
    if judge.max_cost is not None:
        text += f", and judging ends at ${judge.max_cost:,.2f}"
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
            f" It agrees with the check in {percent(record.agreement)} of "
            f"{record.pairs:,} pairs of an accepted and a rejected attempt."
        )
    counted = f", {record.estimated:,} of them estimated" * bool(record.estimated)
    cost = "at a price not known" if record.cost is None else f"${record.cost:,.2f}"
    tokens = record.prompt_tokens + record.response_tokens
    return f"{text} {record.requests:,} requests{counted}, {tokens:,} tokens, {cost}."
