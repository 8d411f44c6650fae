"""Coroutines that run from sync code."""

import asyncio

import pytest

from agentgym.core.background import in_background


def test_a_coroutine_runs_where_an_agents_module_replaced_asyncios_own_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(asyncio, "run")  # nest_asyncio's lacks arguments
    assert in_background(asyncio.sleep(0, "slept")) == "slept"
