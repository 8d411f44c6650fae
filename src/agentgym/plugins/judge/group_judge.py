"""GroupJudge: ask a judge about groups of attempts, and add its ranking to rewards.

Like ART's RULER (https://art.openpipe.ai/fundamentals/ruler), it shows the judge all
attempts at a task together, since a comparison is easier than a single judgement.
Unlike RULER, the check decides first: the scenario accepts attempts that succeed and
rejects the others. Rejected attempts keep their reward; only accepted ones are ranked.
If r is the reward of an accepted attempt and s its score, the new reward is
``r + w * (s - mean of s)``. The mean reward of the group does not change, so unranked
groups are not at a disadvantage. The weight w is at most the difference between the
lowest accepted and the highest rejected reward, so an accepted attempt never falls
below a rejected one.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from agentgym.core.background import in_background
from agentgym.core.files import BEAT_S
from agentgym.core.ledger import Judging
from agentgym.core.openai import Completion
from agentgym.core.prices import Prices
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.errors import (
    AgentGymError,
    ContextLengthError,
    ProviderError,
    ReplyError,
    first_problem,
)
from agentgym.evaluate import events
from agentgym.evaluate.ranker import Ranker
from agentgym.models.reference import PROVIDERS, Endpoint
from agentgym.models.reply import read_reply
from agentgym.plugins.judge.prompt import Entry, JudgeQuestion, question, transcript
from agentgym.security.redaction import beginning

if TYPE_CHECKING:
    import asyncio

    from agentgym.models.endpoint import EndpointLlm

_MOST_WHY = 300


class Score(BaseModel, strict=True, allow_inf_nan=False):
    """A judge's score of an attempt, by its label in the request, with a reason."""

    attempt: Annotated[str, BeforeValidator(str)]
    why: str = ""
    score: float = Field(ge=0, le=1)


class _Scores(BaseModel):
    scores: list[Score]


def response_format(labels: Sequence[str]) -> dict[str, Any]:
    """Return a ``response_format``, for servers that enforce a schema."""
    entry = {
        "type": "object",
        "properties": {
            "attempt": {"type": "string", "enum": sorted(labels, key=int)},
            "why": {"type": "string"},
            "score": {"type": "number"},
        },
        "required": ["attempt", "why", "score"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"scores": {"type": "array", "items": entry}},
        "required": ["scores"],
        "additionalProperties": False,
    }
    named = {"name": "scores", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": named}


def read_scores(completion: dict[str, Any], labels: Sequence[str]) -> list[Score]:
    """Return the scores of a completion, in the order of ``labels``."""
    reply = read_reply(completion)
    text = reply.content
    try:
        found = _Scores.model_validate_json(text[text.find("{") : text.rfind("}") + 1])
    except ValidationError as error:
        raise ReplyError(
            f"it is not an object with scores: {first_problem(error)}"
        ) from None
    by_label = {score.attempt: score for score in found.scores}
    if sorted(score.attempt for score in found.scores) != sorted(labels):
        raise ReplyError(
            f"it scores the attempts {', '.join(by_label) or 'none'}, and was asked "
            f"for {', '.join(sorted(labels, key=int))}"
        )
    return [
        by_label[label].model_copy(update={"why": by_label[label].why[:_MOST_WHY]})
        for label in labels
    ]


# Name of the reward part that holds the judge's ranking.
PART = "judge"
# Maximum tokens of a judge's answer, including a reasoning model's reasoning.
MOST_ANSWER = 4_096
FEW = "fewer than two attempts that the check accepts"
ALIKE = "its attempts are alike"
NO_ROOM = "a rejected attempt has as much reward as an accepted one"
ONE_SIDED = "the check accepts all of its attempts or none"
NO_ANSWER = "the judge did not answer"
TIMEOUT = "the judge took too long"
REFUSED = "the judge refused the key"
TOO_LONG = "the attempts are longer than the judge reads"
NONSENSE = "the judge's answer could not be read"
CAP = "the judge's cost limit was reached"

_IN_FLIGHT = 8
_TIMEOUT_S = 180.0
# Assumed characters per token in estimates; the cost limit assumes only two.
_CHARACTERS = 4
_SHOWN = 300


@dataclass(frozen=True)
class _Group:
    """The scored attempts at one task, and whether the scenario accepts each one."""

    attempts: Sequence[Trajectory]
    accepted: Sequence[bool]

    @classmethod
    def of(cls, group: Sequence[Trajectory]) -> "_Group":
        scored = [
            made
            for made in group
            if made.reward is not None and made.status is not RolloutStatus.DROPPED
        ]
        return cls(scored, [bool(made.success) for made in scored])

    @cached_property
    def transcripts(self) -> list[list[Entry]]:
        return list(map(transcript, self.attempts))

    @cached_property
    def kinds(self) -> list[int]:
        """For each attempt, the index of the first attempt with an equal transcript."""
        seen: dict[str, int] = {}
        texts = (json.dumps(each, default=str) for each in self.transcripts)
        return [seen.setdefault(text, place) for place, text in enumerate(texts)]

    @property
    def distinct(self) -> list[int]:
        return list(dict.fromkeys(self.kinds))

    def rewards(self, accepted: bool) -> list[float]:
        pairs = zip(self.attempts, self.accepted, strict=True)
        return [made.reward or 0.0 for made, is_one in pairs if is_one == accepted]

    @property
    def room(self) -> float:
        """Lowest reward of accepted attempts minus highest reward of rejected ones.

        Infinite if no attempt is rejected.
        """
        rejected = self.rewards(False)
        return min(self.rewards(True)) - max(rejected, default=-float("inf"))

    def unranked(self) -> str:
        """Return why ranking this group would be useless; "" if it should be ranked."""
        chosen = list(compress(self.kinds, self.accepted))
        if len(chosen) < 2:
            return FEW
        if len(set(chosen)) < 2:
            return ALIKE
        return NO_ROOM if self.room <= 0 else ""

    def uncompared(self) -> str:
        """Return why this group cannot show if judge and scenario agree; else ""."""
        return ONE_SIDED if len(set(self.accepted)) < 2 else ""


class GroupJudge(Ranker):
    """Ranks the attempts of groups with a model as judge.

    If the judge cannot be asked or its answer is not usable, the group keeps its
    rewards, and the reason is counted in ``record.kept``.

    Args:
        record: Counts of groups, requests, tokens and cost, to update.
        weight: Maximum reward difference that the ranking makes between two attempts.
        max_cost: Maximum US dollars for all requests in the record. A request that
            might exceed this limit is not sent.
        timeout_s: Seconds for one request, retries included; None means three minutes.
        progress: Receives the phase ``judging``, and warnings when a group fails for a
            new reason.
        beat: Called every half second while waiting; may raise to stop waiting.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        rubric: str,
        record: Judging,
        *,
        weight: float = 0.5,
        prices: Prices | None = None,
        max_cost: float | None = None,
        timeout_s: float | None = None,
        progress: events.Observer = events.silent,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._rubric = rubric
        self._record = record
        self._weight = weight
        self._prices = prices
        self._max_cost = max_cost
        self._timeout_s = timeout_s or _TIMEOUT_S
        self._progress = progress
        self._beat = beat
        self._reserved = 0.0
        self._takes_schema = True
        self._warned: set[str] = set(record.kept)
        if prices is not None and record.cost is None:
            record.cost = 0.0

    def ranked(self, groups: Sequence[Sequence[Trajectory]]) -> list[list[Trajectory]]:
        """Return the groups with the ranking added to rewards of accepted attempts."""
        found = list(map(_Group.of, groups))
        scores = self._judged(found, [group.unranked() for group in found])
        return [
            list(group) if score is None else self._with_ranks(group, made, score)
            for group, made, score in zip(groups, found, scores, strict=True)
        ]

    def compare(self, groups: Sequence[Sequence[Trajectory]]) -> None:
        """Record how often judge and scenario agree; change no rewards."""
        found = list(map(_Group.of, groups))
        self._judged(found, [group.uncompared() for group in found])

    def _with_ranks(
        self, group: Sequence[Trajectory], made: _Group, scores: Sequence[float]
    ) -> list[Trajectory]:
        mean = fmean(compress(scores, made.accepted))
        weight = min(self._weight, made.room)
        pairs = zip(made.attempts, scores, strict=True)
        added = {
            attempt.rollout_id: {PART: weight * (score - mean)}
            for attempt, score in compress(pairs, made.accepted)
        }
        return [each.with_parts(added.get(each.rollout_id, {})) for each in group]

    def _judged(
        self, groups: Sequence[_Group], unfit: Sequence[str]
    ) -> list[list[float] | None]:
        """Return the scores of each group's attempts.

        None for a group without scores.
        """
        self.verdicts = {}
        asked = [group for group, why in zip(groups, unfit, strict=True) if not why]
        if asked:
            count = sum(len(group.attempts) for group in asked)
            self._progress(events.PhaseStarted("judging", count))
        answers = iter(in_background(self._ask_all(asked)) if asked else ())
        found: list[list[float] | None] = []
        record = self._record
        for group, why in zip(groups, unfit, strict=True):
            answer = why or next(answers)
            record.groups += 1
            if isinstance(answer, str):
                record.kept[answer] += 1
                found.append(None)
            else:
                record.judged += 1
                found.append(self._read(group, answer))
        return found

    def _read(self, group: _Group, answer: Sequence[Score]) -> list[float]:
        """Return each attempt's score; count how often judge and scenario agree.

        Attempts with equal transcripts get the same score: ``answer`` has one score for
        each different transcript.
        """
        by_kind = dict(zip(group.distinct, answer, strict=True))
        found = [by_kind[kind] for kind in group.kinds]
        for attempt, score in zip(group.attempts, found, strict=True):
            self.verdicts[attempt.rollout_id] = {"score": score.score, "why": score.why}
        scores = [score.score for score in found]
        rejected = [not is_accepted for is_accepted in group.accepted]
        sides = compress(scores, group.accepted), compress(scores, rejected)
        for right, wrong in product(*sides):
            self._record.pairs += 1
            self._record.agreed += 1.0 if right > wrong else 0.5 * (right == wrong)
        return scores

    async def _ask_all(self, groups: Sequence[_Group]) -> list[list[Score] | str]:
        import asyncio

        from agentgym.models.endpoint import EndpointLlm  # imports aiohttp

        llm = EndpointLlm(self._endpoint)
        limit = asyncio.Semaphore(_IN_FLIGHT)
        try:
            async with asyncio.TaskGroup() as work:
                made = [work.create_task(self._ask(llm, limit, g)) for g in groups]
                while not all(task.done() for task in made):
                    await asyncio.wait(made, timeout=BEAT_S)
                    self._beat()
        except BaseExceptionGroup as error:  # always of one: _ask fails in no other way
            raise error.exceptions[0] from None
        finally:
            await llm.close()
        return [task.result() for task in made]

    async def _ask(
        self, llm: "EndpointLlm", limit: "asyncio.Semaphore", group: _Group
    ) -> list[Score] | str:
        """Return the scores of a group's distinct attempts, or why there are none."""
        import asyncio

        async with limit:
            asked = self._question(group)
            bound = self._cost(2 * asked.size // _CHARACTERS, MOST_ANSWER)
            affords = self._affords(bound)
            self._reserved += bound
            try:
                if not affords:
                    return self._failed(CAP, f"judge.max_cost = {self._max_cost}")
                async with asyncio.timeout(self._timeout_s):
                    return await self._answer(llm, asked)
            except TimeoutError:
                self._count({}, asked, "")  # it may be charged anyway
                return self._failed(TIMEOUT, f"{self._timeout_s:g} s")
            except ReplyError as error:
                return self._failed(NONSENSE, str(error))
            except ProviderError as error:
                return self._failed(REFUSED, str(error))
            except ContextLengthError as error:
                return self._failed(TOO_LONG, str(error))
            except AgentGymError as error:
                return self._failed(NO_ANSWER, str(error))
            finally:
                self._reserved -= bound
                for _ in group.attempts:
                    self._progress(events.RolloutDone())

    async def _answer(self, llm: "EndpointLlm", asked: JudgeQuestion) -> list[Score]:
        """Send a request to the judge and return the scores of its answer."""
        is_openai = self._endpoint.servers[0] == PROVIDERS["openai"]
        options: dict[str, Any] = {
            "max_completion_tokens" if is_openai else "max_tokens": MOST_ANSWER
        }
        form = {"response_format": response_format(asked.labels)}
        self._record.requests += 1
        try:
            given = form if self._takes_schema else {}
            found = await llm(asked.messages, **options, **given)
        except AgentGymError as error:
            if "response_format" not in str(error) and "json_schema" not in str(error):
                raise
            self._takes_schema = False
            found = await llm(asked.messages, **options)
        text = json.dumps(found.get("choices"), default=str)
        self._count(Completion(found).token_counts, asked, text)
        return read_scores(found, asked.labels)

    def _question(self, group: _Group) -> JudgeQuestion:
        first = group.attempts[0]
        tools = next((call.tools for call in first.model_calls if call.tools), [])
        shown = [group.transcripts[place] for place in group.distinct]
        order = list(range(len(shown)))
        Random(first.rollout_id).shuffle(order)
        mark = f"=== {secrets.token_hex(8)}"
        return question(shown, tools, self._rubric, mark=mark, order=order)

    def _count(self, counts: dict[str, int], asked: JudgeQuestion, text: str) -> None:
        """Add the tokens and cost of a request to the record."""
        record = self._record
        prompt, response = counts.get("prompt_tokens"), counts.get("response_tokens")
        if prompt is None or response is None:
            record.estimated += 1
            prompt, response = asked.size // _CHARACTERS, len(text) // _CHARACTERS
        record.prompt_tokens += prompt
        record.response_tokens += response
        if record.cost is not None:
            record.cost += self._cost(prompt, response)

    def _cost(self, prompt: int, response: int) -> float:
        return 0.0 if self._prices is None else self._prices.cost(prompt, response)

    def _affords(self, bound: float) -> bool:
        if self._max_cost is None:
            return True
        return (self._record.cost or 0.0) + self._reserved + bound <= self._max_cost

    def _failed(self, why: str, detail: str) -> str:
        if why not in self._warned:
            self._warned.add(why)
            text = (
                f"{why[:1].upper()}{why[1:]}: {beginning(detail, _SHOWN)}. Groups of "
            )
            text += "attempts without its ranking keep their own rewards."
            self._progress(events.Warned(text))
        return why
