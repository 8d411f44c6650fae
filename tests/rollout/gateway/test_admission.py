"""Admission: places in order, given back whatever happens to their holders."""

import asyncio
from contextlib import suppress

import pytest

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.http import Admission
from agentgym.rollout.gateway.protocol import GatewaySettings


async def hold(admission: Admission, name: str, order: list[str]) -> None:
    async with admission:
        order.append(name)
        await asyncio.sleep(0)


async def test_who_waits_is_admitted_in_order() -> None:
    admission = Admission(GatewaySettings(max_in_flight=2))
    order: list[str] = []
    await asyncio.gather(*(hold(admission, str(i), order) for i in range(20)))
    assert order == [str(i) for i in range(20)]
    assert admission.in_flight == 0


async def test_no_place_is_lost_when_those_who_wait_are_cancelled() -> None:
    admission = Admission(GatewaySettings(max_in_flight=1))
    order: list[str] = []
    for steps in range(8):  # cancelled before, at and after the place becomes free
        async with admission:
            waiting = asyncio.create_task(hold(admission, "x", order))
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert admission.in_flight == 0
        await hold(admission, "y", order)


async def test_a_pause_also_refuses_who_waited() -> None:
    admission = Admission(GatewaySettings(max_in_flight=1))
    async with admission:
        waiting = asyncio.create_task(hold(admission, "x", []))
        await asyncio.sleep(0)
        admission.pause("update", 3)
    with pytest.raises(ApiError, match="gateway paused: update") as caught:
        await waiting
    assert caught.value.headers["Retry-After"] == "3"
    assert admission.in_flight == 0
