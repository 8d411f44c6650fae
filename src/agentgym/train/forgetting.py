"""Forgetting: measure how much training changes answers to everyday questions.

Training for tool calls can change how a model answers anything else. The KL divergence
from the untrained model, measured on the new task, predicts how much of other tasks the
model forgets (arXiv:2509.04259). This module uses everyday questions without tools:
KL(untrained || trained) per token of the untrained model's answers, by the k3 estimate
(http://joschu.net/blog/kl-approx.html): the mean of ``r - 1 - log r``, where ``r`` is a
token's current probability divided by its probability at sampling. Every term is at
least 0, so the estimate varies little.
"""

from importlib.resources import files
from typing import TYPE_CHECKING

from pydantic import Field

from agentgym.core.background import in_background
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.records import Record
from agentgym.engines.base import TrainingBatch, TrainingSequence
from agentgym.engines.settings import adapted_roles
from agentgym.evaluate.numbers import plural
from agentgym.models.folder import is_small

if TYPE_CHECKING:
    from agentgym.engines.base import Engine

MOST_TOKENS = 64
"""Most tokens of an answer. Longer answers would not show a change better."""
LARGE = 0.1
"""A run warns if the KL, in nats per token, is at least this. At this value, an answer
of 64 tokens is about 600 times (e^6.4) less likely than before training."""
_SHARE = 0.04
"""Upper limit on the number of questions, as a share of the run's rollouts, so that
they take little time: an answer takes no longer than a rollout of several calls."""
_LEAST = 8
"""Least number of questions for a useful estimate."""


class PlainAnswer(Record):
    """An answer of the untrained model to an everyday question, as token ids.

    Attributes:
        agent: The team's role whose LoRA adapter is compared; empty if all roles share
            the weights.
    """

    agent: str = ""
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]


class Forgetting(Record):
    """The distance of a model from its untrained state, by its answers to questions.

    Attributes:
        kl: The newest distance, as KL divergence in nats per token; None before the
            first measurement.
        skipped: Why the distance is not measured; empty if it is.
    """

    answers: list[PlainAnswer] = Field(default_factory=list)
    questions: int = 0
    tokens: int = 0
    kl: float | None = None
    skipped: str = ""

    @property
    def is_large(self) -> bool:
        """Whether the distance is so large that other abilities may be lost."""
        return self.kl is not None and self.kl >= LARGE

    def without_answers(self) -> "Forgetting":
        """Return a copy without the answers, for a run's result."""
        return self.model_copy(update={"answers": []})

    def words(self) -> str:
        """Describe the distance as text, or say why it was not measured."""
        if self.kl is None:
            return f"not measured: {self.skipped or 'the run has not ended'}"
        said = (
            f"{self.kl:.3f} nats a token from the untrained model, in its answers to "
            f"{plural(self.questions, 'everyday question')} (KL)"
        )
        if not self.is_large:
            return said
        return (
            f"{said}: a lot, from {LARGE:g} on. It may have lost other abilities. Try "
            "fewer steps, a lower learning_rate, or no warm start"
        )


def read_questions() -> list[str]:
    """Return everyday questions that need no tools."""
    file = files(__package__).joinpath("forgetting_questions.txt")
    return file.read_text(encoding="utf-8").splitlines()


def ask_questions(
    engine: "Engine",
    config: TrainingConfig,
    rollouts: int,
    rollout_seconds: float | None = None,
) -> Forgetting:
    """Let the untrained model answer everyday questions, without tools.

    ``rollouts`` is the upper limit of the whole run. If they are skipped, ``skipped``
    has the reason.
    """
    count = min(config.forgetting_questions, int(_SHARE * rollouts))
    if config.time is not None and rollout_seconds:
        count = min(count, int(_SHARE * config.time / rollout_seconds))
    policy = engine.policy
    if not config.forgetting_questions:
        return Forgetting(skipped="forgetting_questions is 0")
    if is_small(config.model):
        return Forgetting(skipped=f"{config.model} calls tools and cannot chat")
    if not engine.compares or not isinstance(policy, Policy):
        return Forgetting(skipped=f"the engine {config.engine} does not compare models")
    if count < _LEAST:
        return Forgetting(skipped=f"the run is too short for {_LEAST} questions")
    agents = adapted_roles(config) or ("",)
    requests = [
        ChatRequest(
            [{"role": "user", "content": question}],
            agent=agents[number % len(agents)],
            max_tokens=MOST_TOKENS,
            seed=config.seed + number,
        )
        for number, question in enumerate(read_questions()[:count])
    ]
    with engine.sampling():
        found = in_background(_all_of(policy, requests))
    answers = [
        PlainAnswer(
            agent=asked.agent,
            prompt_ids=made.prompt_ids,
            response_ids=made.response_ids,
            logprobs=made.logprobs,
        )
        for asked, made in zip(requests, found, strict=True)
    ]
    tokens = sum(len(answer.response_ids) for answer in answers)
    return Forgetting(answers=answers, questions=len(answers), tokens=tokens)


async def _all_of(policy: Policy, requests: list[ChatRequest]) -> list[ChatResult]:
    import asyncio

    return await asyncio.gather(*map(policy.chat, requests))


def compare(engine: "Engine", found: Forgetting) -> Forgetting:
    """Measure the model's distance from its untrained state.

    Returns a copy of ``found`` with the new distance, or ``found`` itself if it has no
    answers.
    """
    if not found.answers:
        return found
    sequences = [
        TrainingSequence.of_answer(
            number,
            answer.prompt_ids,
            answer.response_ids,
            answer.logprobs,
            agent=answer.agent,
        )
        for number, answer in enumerate(found.answers)
    ]
    return found.model_copy(update={"kl": engine.compare(TrainingBatch(sequences))})
