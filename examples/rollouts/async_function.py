"""Any async function can be the model: here one that looks answers up."""

from typing import Any

from agentgym.rollout import run_rollouts_sync

CAPITALS = {"France": "Paris", "Japan": "Tokyo"}


async def llm(messages: list[dict[str, Any]], **options: Any) -> str:
    """Answer with the capital of the country that the last message names."""
    country = messages[-1]["content"].split()[-1].rstrip("?")
    return CAPITALS.get(country, "I do not know.")


if __name__ == "__main__":
    questions = [f"What is the capital of {c}?" for c in ("France", "Japan", "Mars")]
    batch = run_rollouts_sync(questions, llm=llm)
    for question, trajectory in zip(questions, batch.trajectories, strict=True):
        print(question, trajectory.answer)
