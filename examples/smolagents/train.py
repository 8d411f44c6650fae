"""Train the museum's agent as it is, then ask the trained one.

python train.py MODEL [EPISODES]
"""

import sys

from museum import desk
from smolagents import AgentError

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000
    result = Trainer().train(
        agent=desk,
        tasks="tasks.jsonl",
        model=sys.argv[1],
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    try:
        print(result.agent.run("Where is Monet?", max_steps=4))
    except AgentError as error:
        print(error)
