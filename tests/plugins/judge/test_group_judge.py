"""A judge's ranking in rewards, and the groups that keep their own."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from agentgym.core.prices import Prices
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.evaluate import events
from agentgym.plugins.judge import group_judge
from tests.observers import Seen
from tests.plugins.judge.judges import (
    attempt,
    by_length,
    judge_at,
    says,
    scoring,
    shown_attempts,
)
from tests.rollout.stub_server import Handler, StubServer

PRICES = Prices(prompt=10.0, response=100.0)  # 1,000 and 100 tokens: $0.02


def rewards(group: list[Trajectory]) -> list[float | None]:
    return [made.reward for made in group]


def pair() -> list[Trajectory]:
    return [attempt("a", "Done."), attempt("b", "It is done now, as you asked me to.")]


def test_the_better_of_two_accepted_attempts_earns_more() -> None:
    with StubServer(scoring(by_length)) as server:
        judge, record = judge_at(server, weight=0.5)
        [group] = judge.ranked([pair()])
    short, long = (made.reward or 0.0 for made in group)
    assert short - long == pytest.approx(0.5 * (35 - 5) / 100)
    assert short + long == pytest.approx(2.0)
    assert group[0].reward_parts == {
        "scenario": 1.0,
        "judge": pytest.approx(short - 1.0),
    }
    assert (record.groups, record.judged, record.requests) == (1, 1, 1)
    assert judge.verdicts["a"] == {"score": 0.95, "why": "so"}
    [body] = server.bodies
    assert "Short is better." in body["messages"][0]["content"]
    assert body["response_format"]["json_schema"]["strict"] is True


def test_a_judge_never_overrules_a_check() -> None:
    """It prefers the rejected attempts, and they keep their rewards, below the rest."""
    wrong = [attempt(f"w{n}", "x" * n, success=False, reward=0.9) for n in (1, 2)]
    right = [attempt(f"r{n}", "x" * n, reward=1.0) for n in (20, 90)]
    with StubServer(scoring(by_length)) as server:
        judge, record = judge_at(server, weight=5.0)
        [group] = judge.ranked([[*wrong, *right]])
    found = rewards(group)
    assert found[:2] == [0.9, 0.9]
    assert found[2] > 1.0 > found[3] > 0.9  # type: ignore[operator]
    assert (record.pairs, record.agreement) == (4, 0.0)


def test_agreement_counts_pairs_and_ties_by_half() -> None:
    right, wrong = attempt("r", "x"), attempt("w", "x" * 50, success=False, reward=0.0)
    tie = attempt("t", "y", success=False, reward=0.0)
    with StubServer(scoring(by_length)) as server:
        judge, record = judge_at(server)
        judge.compare([[right, wrong, tie], [right, right]])
    assert (record.pairs, record.agreed) == (2, 1.5)
    assert record.kept == {group_judge.ONE_SIDED: 1}
    assert record.adds_up


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ([attempt("a", "x"), attempt("b", "y", success=False)], group_judge.FEW),
        ([attempt("a", "x"), attempt("b", "x")], group_judge.ALIKE),
        ([*pair(), attempt("w", "z", success=False, reward=2.0)], group_judge.NO_ROOM),
        (
            [
                attempt("a", "x"),
                attempt("b", "y", reward=None, status=RolloutStatus.DROPPED),
            ],
            group_judge.FEW,
        ),
    ],
)
def test_a_group_that_a_ranking_cannot_change_is_not_asked_about(
    group: list[Trajectory], why: str
) -> None:
    with StubServer() as server:
        judge, record = judge_at(server)
        assert judge.ranked([group]) == [group]
        assert server.bodies == []
    assert record.kept == {why: 1}


def test_attempts_that_are_alike_are_shown_once_and_earn_the_same() -> None:
    group = [attempt("a", "x"), attempt("b", "x"), attempt("c", "x" * 50)]
    with StubServer(scoring(by_length)) as server:
        judge, _ = judge_at(server)
        [found] = judge.ranked([group])
        [body] = server.bodies
    assert len(shown_attempts(body)) == 2 + 2 + 1  # tools, beginning, two, end
    assert found[0].reward == found[1].reward != found[2].reward


def failing(status: int, **error: str) -> Handler:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
        return web.json_response({"error": error}, status=status)

    return answer


async def hang(request: web.Request, body: dict[str, Any]) -> web.Response:
    await asyncio.sleep(30)
    return says("")


NONSENSE = (
    "Attempt 1 is the best.",
    '{"scores": [{"attempt": "1", "score": 1}, {"attempt": "1", "score": 0}]}',
)


def answering(text: str) -> Handler:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
        return says(text)

    return answer


@pytest.mark.parametrize(
    ("respond", "why"),
    [
        *((answering(text), group_judge.NONSENSE) for text in NONSENSE),
        (failing(400, message="broken"), group_judge.NO_ANSWER),
        (failing(401, message="no such key"), group_judge.REFUSED),
        (
            failing(400, message="too long", code="context_length_exceeded"),
            group_judge.TOO_LONG,
        ),
        (hang, group_judge.TIMEOUT),
    ],
)
def test_a_judge_that_fails_leaves_the_rewards_and_is_named_once(
    respond: Handler, why: str
) -> None:
    group, seen = pair(), Seen()
    with StubServer(respond) as server:
        judge, record = judge_at(server, timeout_s=0.3, progress=seen)
        assert judge.ranked([group, group]) == [group, group]
    assert record.kept == {why: 2}
    assert record.judged == 0
    assert record.adds_up
    [text] = seen.texts
    assert text.lower().startswith(why.lower())
    assert text.endswith("without its ranking keep their own rewards.")


def test_judging_ends_at_its_cap_and_the_bill_stays_below_it() -> None:
    seen = Seen()
    with StubServer(scoring(by_length)) as server:
        judge, record = judge_at(server, prices=PRICES, max_cost=0.6, progress=seen)
        for _ in range(40):
            judge.ranked([pair()])
    begun = sum(event.total for event in seen.of(events.PhaseStarted))
    assert len(seen.of(events.RolloutDone)) == begun == 80
    assert record.kept[group_judge.CAP] == 40 - record.judged > 0
    assert record.judged == record.requests == len(server.bodies)
    assert record.cost == pytest.approx(0.02 * record.judged)
    assert record.cost <= 0.6
    [text] = seen.texts
    assert "judge.max_cost = 0.6" in text


def test_a_server_that_counts_no_tokens_is_charged_by_an_estimate() -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.Response:
        scores = [{"attempt": n, "why": "", "score": 0.5} for n in "12"]
        return says(json.dumps({"scores": scores}), counted=False)

    with StubServer(answer) as server:
        judge, record = judge_at(server, prices=PRICES)
        judge.ranked([pair()])
    assert (record.judged, record.estimated) == (1, 1)
    assert 200 < record.prompt_tokens < 2_000
    assert record.cost == pytest.approx(
        (record.prompt_tokens * 10 + record.response_tokens * 100) / 1e6
    )


def test_a_server_that_knows_no_schema_is_asked_without_one() -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "response_format" in body:
            error = {"message": "response_format is not supported"}
            return web.json_response({"error": error}, status=400)
        return await scoring(by_length)(request, body)

    with StubServer(answer) as server:
        judge, record = judge_at(server)
        judge.ranked([pair()])
        judge.ranked([pair()])
        asked = ["response_format" in body for body in server.bodies]
        assert asked == [True, False, False]
    assert record.judged == 2


@pytest.mark.slow
def test_ctrl_c_ends_the_wait() -> None:
    def interrupt() -> None:
        raise RuntimeError("Ctrl-C")

    with StubServer(hang) as server:
        judge, _ = judge_at(server, beat=interrupt)
        with pytest.raises(RuntimeError, match="Ctrl-C"):
            judge.ranked([pair()])
