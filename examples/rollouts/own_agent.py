"""An agent loop of your own: draft, criticise, improve.

Usage: own_agent.py MODEL
"""

import sys

from agentgym.rollout import Episode, RolloutAgent, run_rollouts_sync


class Reviser(RolloutAgent):
    """Answers twice; the second time it has been told to look again."""

    name = "reviser"
    system_prompt = "Answer in one sentence."

    async def run(self, episode: Episode) -> str:
        """Ask, ask for a better answer, and return that."""
        messages = episode.opening()
        draft = await episode.ask(messages)
        messages.append(draft.message)
        messages.append({"role": "user", "content": "Can you improve on that?"})
        improved = await episode.ask(messages)
        return improved.content


if __name__ == "__main__":
    batch = run_rollouts_sync(["Why is the sky blue?"], llm=sys.argv[1], agent=Reviser)
    (trajectory,) = batch.trajectories
    for call in trajectory.model_calls:
        print("-", call.content)
    print("Answer:", trajectory.answer)
