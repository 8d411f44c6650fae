"""Train the bank's support as it is, then ask the trained one.

python train.py [EPISODES]
"""

import sys

from bank import Bank, support
from pydantic_ai import UnexpectedModelBehavior, capture_run_messages

from agentgym import Trainer

if __name__ == "__main__":
    episodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    result = Trainer().train(
        agent={"reference": support, "context": "bank:bank_of"},
        tasks="tasks.jsonl",
        episodes=episodes,
        warm_start=True,
        yes=True,
    )
    print(result.baseline.pass_1.value, "->", result.metrics.pass_1.value)
    with capture_run_messages() as messages:
        try:
            result.agent.run_sync("What is in my savings account?", deps=Bank())
        except UnexpectedModelBehavior as error:  # it called a tool wrongly, twice
            print(error)
    for message in messages:
        print(*(part.part_kind for part in message.parts))
