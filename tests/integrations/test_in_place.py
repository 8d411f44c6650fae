"""Live tools run in their framework, which gets what they return or raise."""

from typing import Any

import pytest
from pydantic import create_model

from agentgym.core.tools import ToolOutcome, ToolSpec, run_tool
from agentgym.integrations.in_place import CallInPlace, live_tool

SPEC = ToolSpec("give", "Give a thing.", create_model("Arguments"))


class Steering(Exception):
    """What a framework raises in a tool to steer itself."""


async def elsewhere(_: dict[str, Any]) -> Any:
    raise AssertionError("the tool ran outside of its framework")


async def test_a_framework_gets_the_tools_own_result_and_the_record_a_copy() -> None:
    own = object()

    async def give(_: dict[str, Any]) -> Any:
        return own

    call = CallInPlace("give", give, read=lambda result: "a thing")
    with call.running():
        found = await run_tool({"give": live_tool(SPEC, elsewhere)}, "give", {})
    assert found == (ToolOutcome.OK, "a thing")
    assert call.result(found[1]) is own


async def test_exceptions_that_steer_a_framework_reach_it() -> None:
    async def steer(_: dict[str, Any]) -> Any:
        raise Steering("ask first")

    tool = live_tool(SPEC, elsewhere)
    unfinished = CallInPlace("give", steer, not_done=(Steering,))
    with pytest.raises(Steering), unfinished.running():
        try:
            await tool.run({}, {})
        except Exception:  # noqa: BLE001 - as the code that records calls does
            pytest.fail("a call that is not done was recorded")
    failed = CallInPlace("give", steer, handled=(Steering,))
    with failed.running(), pytest.raises(Steering):
        await tool.run({}, {})
    with pytest.raises(Steering, match="ask first"):
        failed.result("Error: ask first")
