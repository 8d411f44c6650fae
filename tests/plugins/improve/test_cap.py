"""Money: of made ladders that ask paid models, none ever costs more than its cap.

The models are a server with a script, which counts what it would be paid for.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from aiohttp import web

from agentgym.core.prices import Prices
from agentgym.errors import AgentGymError, ProviderError
from agentgym.models.reference import Endpoint
from agentgym.plugins.improve.ladder import try_rungs
from agentgym.plugins.improve.rungs import Climb, Outcome, Price
from agentgym.plugins.improve.search import Reflector
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.gateway.metered import Meter, MeteredEndpoint, Purse
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.store.records import NewRollout
from agentgym.rollout.store.store import Store
from tests.plugins.improve.scripts import Scripted, climb_in, solved
from tests.rollout.stub_server import StubServer, completion

LADDERS = 50


class Provider:
    """Answers as it likes, and counts the dollars that it is owed."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.prices: dict[str, Prices] = {}
        self.owed = 0.0
        self.refused = self.cut = 0

    async def __call__(
        self, request: web.Request, body: dict[str, Any]
    ) -> web.StreamResponse:
        rng, price = self.rng, self.prices[body["model"]]
        await asyncio.sleep(rng.random() * 0.002)
        luck = rng.random()
        if luck < 0.05 and body["model"] == "agent":
            self.refused += 1
            return web.json_response({"error": {"message": "slow down"}}, status=429)
        prompt = rng.randint(1, int(request.content_length or 1))
        response = rng.randint(1, body["max_tokens"])
        self.owed += price.cost(prompt, response)
        if luck < 0.1:  # it is owed all the same
            self.cut += 1
            assert request.transport is not None
            request.transport.abort()
        answer = completion("```\nBe good.\n```")
        del answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        answer["usage"] = {"prompt_tokens": prompt, "completion_tokens": response}
        if luck > 0.95:
            del answer["usage"]
        return web.json_response(answer)


def asks(
    count: int, prices: Prices, solves: int, server: StubServer
) -> Callable[[Climb], Outcome]:
    """Return a rung's work: so many requests of an agent, eight at a time."""

    async def at_once(gateway: Gateway) -> None:
        limit = asyncio.Semaphore(8)
        url = gateway.proxy_url("r0", mode="val") + "/chat/completions"
        headers = {"X-API-Key": gateway.api_key}

        async def ask(client: httpx.AsyncClient, n: int) -> None:
            body = {"messages": [{"role": "user", "content": "word " * (1 + n % 40)}]}
            async with limit:
                await client.post(url, json=body, headers=headers)

        async with httpx.AsyncClient(
            timeout=60, verify=False, trust_env=False
        ) as client:
            await asyncio.gather(*(ask(client, n) for n in range(count)))

    def work(climb: Climb) -> Outcome:
        meter = climb.meter(prices)
        meter.most_tokens = 64
        endpoint = MeteredEndpoint((server.endpoint,), "", "agent", meter=meter)
        settings = GatewaySettings(upstream_backoff_s=0.001)
        with Store() as store, Gateway(store, policy=endpoint, settings=settings) as g:
            store.create_rollouts([NewRollout(rollout_id="r0", input={})])
            asyncio.run(at_once(g))
            if g.failure is not None:
                raise ProviderError(g.failure)
        return Outcome("done.", solved(solves))

    return work


def reflects(
    count: int, prices: Prices, solves: int, server: StubServer
) -> Callable[[Climb], Outcome]:
    """Return a rung's work: so many requests to a reflection model."""

    def work(climb: Climb) -> Outcome:
        endpoint = Endpoint((server.endpoint,), "", "reflection")
        reflector = Reflector(MeteredEndpoint.of(endpoint, climb.meter(prices)))
        for n in range(count):
            try:
                reflector(f"attempt {n}: " + "it failed. " * (n % 30))
            except AgentGymError:
                break
        return Outcome(reflector.problem, solved(solves))

    return work


@pytest.mark.slow  # 50 ladders, each with gateways of its own: six seconds
@pytest.mark.timeout(300)
def test_no_ladder_ever_costs_more_than_its_cap(tmp_path: Path) -> None:
    rng = Random(7)
    provider = Provider(Random(8))
    met, capped, spent = 0, 0, 0
    with StubServer(provider) as server:
        for n in range(LADDERS):
            of_agent = Prices(prompt=rng.uniform(0, 30), response=rng.uniform(0, 100))
            of_reflection = Prices(
                prompt=rng.uniform(0, 10), response=rng.uniform(0, 40)
            )
            provider.prices = {"agent": of_agent, "reflection": of_reflection}
            provider.owed = 0.0
            cap = rng.choice((0.0, 0.05, rng.uniform(0, 0.5), rng.uniform(0, 5)))
            unknown = Price("not known.", None)
            rungs = [
                Scripted(
                    f"rung {place}",
                    kind(rng.randint(1, most), prices, rng.randint(0, 9), server),
                    price=unknown,
                )
                for place, (kind, most, prices) in enumerate(
                    [(asks, 60, of_agent), (reflects, 12, of_reflection)] * 2
                )
            ]
            climb = climb_in(tmp_path / str(n), cap=cap, yes=True)
            bill = try_rungs(rungs, climb)
            assert provider.owed <= bill.dollars + 1e-9, "the bill leaves nothing out"
            assert bill.dollars <= cap + 1e-9
            assert abs(bill.dollars - climb.purse.spent) < 1e-9
            met += bill.is_met
            capped += any(meter.is_spent for meter in climb.meters)
            spent += bill.dollars > 0
    assert min(met, capped, spent, LADDERS - capped) >= 3, "all kinds were among them"
    assert provider.refused
    assert provider.cut


def test_a_request_waits_for_those_under_way() -> None:
    purse = Purse(1.0)
    meter = Meter(purse, read=1.0)
    assert meter.reserve(0.7)
    assert not meter.reserve(0.7)
    assert not meter.is_spent, "the first one may cost less"
    meter.settle(0.7, (100_000, 0))
    assert meter.reserve(0.7)
    meter.settle(0.7, None)
    assert not meter.reserve(0.7)
    assert meter.is_spent
    assert purse.spent == meter.cost == 0.1 + 0.7


def test_money_that_is_kept_back_is_there_afterwards() -> None:
    purse = Purse(1.0)
    with purse.kept_back(0.4):
        assert not purse.reserve(0.7)
        assert purse.left == 0.6
    assert purse.reserve(0.7)


def test_a_model_that_is_free_needs_no_money() -> None:
    meter = Meter(Purse(0.0))
    assert meter.reserve(meter.bound(b"hello"))
    meter.settle(0.0, (5, 5))
    assert (meter.cost, meter.prompt_tokens) == (0.0, 5)
