"""Train the post office's agents as they are, then ask the trained ones.

python train.py [EPISODES]
"""

import asyncio
import sys

from google.adk.agents import RunConfig
from google.adk.runners import InMemoryRunner
from google.genai import types
from post import root_agent

from agentgym import Trainer


async def ask(agent: object, text: str) -> None:
    """Run an agent, and print what its events are."""
    runner = InMemoryRunner(agent, app_name="post")
    named = {"user_id": "me", "session_id": "one"}
    await runner.session_service.create_session(app_name="post", **named)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    most = RunConfig(max_llm_calls=4)
    try:
        async for event in runner.run_async(
            new_message=message, run_config=most, **named
        ):
            for part in event.content.parts or ():
                print(event.author, part.model_dump(exclude_none=True))
    except Exception as error:  # noqa: BLE001 - ADK raises what the model causes
        print(type(error).__name__, error)


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent=root_agent,
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    asyncio.run(ask(result.agent, "Where is P100?"))
