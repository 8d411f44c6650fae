"""Train the kitchen's agent as it is, then ask the trained one.

python train.py [EPISODES]
"""

import sys

from kitchen import kitchen
from strands.types.exceptions import EventLoopException

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent=kitchen, tasks="tasks.jsonl", episodes=episodes, warm_start=True, yes=True
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    try:
        result.agent("How much flour is there?")  # it prints its answer
    except EventLoopException as error:  # a prompt longer than the policy reads
        print(error)
    for message in result.agent.messages:
        print(message["role"], *(key for part in message["content"] for key in part))
