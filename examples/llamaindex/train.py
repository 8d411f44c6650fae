"""Train the garage's agents as they are, then ask the trained ones.

python train.py [EPISODES]
"""

import asyncio
import sys

from garage import garage
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.workflow import WorkflowRuntimeError

from agentgym import Trainer


async def main(trained: AgentWorkflow) -> None:
    """Ask the trained garage, and print which tools it calls."""
    run = trained.run("Who owns B-AB 12?", max_iterations=4)
    try:
        output = await run
    except WorkflowRuntimeError as error:  # too many steps: it has learned little
        print(error)
        return
    for call in output.tool_calls:
        print(call.tool_name, call.tool_kwargs)
    print(output)


if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent=garage, tasks="tasks.jsonl", episodes=episodes, warm_start=True, yes=True
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    asyncio.run(main(result.agent))
