"""An agent loop of your own: draft, criticise, improve.

Usage: own_agent.py [MODEL], e.g. openai:gpt-4.1-mini. Without one, a function of this
file stands in for the model.
"""

import sys
from typing import Any

from agentgym.rollout import Episode, RolloutAgent, run_rollouts_sync


class Reviser(RolloutAgent):
    """Answers twice; the second time after a request to improve the draft."""

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


async def scripted(messages: list[dict[str, Any]], **options: Any) -> str:
    """Answer the question; the second time, better."""
    is_draft = sum(each["role"] == "user" for each in messages) == 1
    return "Because of the air." if is_draft else "Rayleigh scattering."


if __name__ == "__main__":
    llm = sys.argv[1] if len(sys.argv) > 1 else scripted
    batch = run_rollouts_sync(["Why is the sky blue?"], llm=llm, agent=Reviser)
    (trajectory,) = batch.trajectories
    for call in trajectory.model_calls:
        print("-", call.content)
    print("Answer:", trajectory.answer)
