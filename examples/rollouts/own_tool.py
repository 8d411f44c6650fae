"""Functions of your own as tools: typed, with a docstring, sync or async.

Usage: own_tool.py [MODEL], e.g. openai:gpt-4.1-mini. Without one, a function of this
file stands in for a model that knows what to call.
"""

import json
import sys
from typing import Any

from agentgym.rollout import run_rollouts_sync, tool


@tool
def temperature(city: str) -> float:
    """Return the temperature of a city in degrees Celsius.

    Args:
        city: Its name, e.g. "Bonn".
    """
    return {"Bonn": 21.5, "Oslo": 14.0}[city]


@tool
async def to_fahrenheit(celsius: float) -> float:
    """Convert degrees Celsius to Fahrenheit."""
    return celsius * 9 / 5 + 32


async def scripted(messages: list[dict[str, Any]], **options: Any) -> Any:
    """Call both tools, one after the other, then answer with the result."""
    results = [each["content"] for each in messages if each["role"] == "tool"]
    if len(results) == 2:
        return f"It is {results[-1]} F."
    name: str = "temperature"
    arguments: dict[str, Any] = {"city": "Bonn"}
    if results:
        name, arguments = "to_fahrenheit", {"celsius": float(results[0])}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": f"call_{len(results)}", "function": function}]}


if __name__ == "__main__":
    batch = run_rollouts_sync(
        ["How warm is Bonn, in Fahrenheit?"],
        llm=sys.argv[1] if len(sys.argv) > 1 else scripted,
        tools=[temperature, to_fahrenheit],
    )
    (trajectory,) = batch.trajectories
    for call in trajectory.get_tool_calls():
        print(call.name, call.arguments, "->", call.result)
    print(trajectory.answer)
