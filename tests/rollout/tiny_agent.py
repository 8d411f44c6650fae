"""An agent as Agent Lightning's local controller runs it: a class in a process."""

import os

import httpx


class TinyAgent:
    """Asks the model once and reports a reward."""

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {os.environ['AGL_KEY']}"}
        answer = httpx.post(
            os.environ["AGL_OPENAI_BASE_URL"] + "/chat/completions",
            json={"messages": [{"role": "user", "content": os.environ["QUESTION"]}]},
            headers=headers,
        )
        answer.raise_for_status()
        reward = {"event_type": "reward", "data": {"value": 0.75, "source": "agent"}}
        httpx.post(os.environ["AGL_EVENT_URL"], json=reward, headers=headers)


class BrokenAgent:
    """Fails."""

    def run(self) -> None:
        raise RuntimeError("broken")
