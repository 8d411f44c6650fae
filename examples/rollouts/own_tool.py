"""Functions of your own as tools: typed, with a docstring, sync or async.

Usage: own_tool.py MODEL
"""

import sys

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


if __name__ == "__main__":
    batch = run_rollouts_sync(
        ["How warm is Bonn, in Fahrenheit?"],
        llm=sys.argv[1],
        tools=[temperature, to_fahrenheit],
    )
    (trajectory,) = batch.trajectories
    for call in trajectory.get_tool_calls():
        print(call.name, call.arguments, "->", call.result)
    print(trajectory.answer)
