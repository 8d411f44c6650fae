"""The built-in agent loop: no framework, the least work per call."""

import json
from typing import Any

from agentgym.core.tools import ToolSpec, parse_arguments, tool_specs
from agentgym.errors import RolloutError, UnsupportedError
from agentgym.integrations.base import Adapter, Blueprint, EpisodeCut, RunnableAgent
from agentgym.integrations.episode import Episode, current_episode


class NativeAgent(RunnableAgent):
    """Calls the model and runs the tools it asks for, until nobody says more."""

    def __init__(self, blueprint: Blueprint) -> None:
        import aiohttp

        self._blueprint = blueprint
        self._tools = [spec.to_openai() for spec in blueprint.tools]
        self._session = aiohttp.ClientSession(
            blueprint.gateway,
            connector=aiohttp.TCPConnector(limit=blueprint.connections),
            headers={"Authorization": f"Bearer {blueprint.api_key}"},
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def run(self, instruction: str) -> None:
        """Run the loop from the user's first message to the end."""
        episode = current_episode()
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._blueprint.system_prompt},
            {"role": "user", "content": instruction},
        ]
        for _ in range(self._blueprint.max_turns):
            message = await self._complete(episode, messages)
            messages.append(message)
            calls = message.get("tool_calls")
            if not calls:
                reply = episode.user_reply(message.get("content") or "")
                if reply is None:
                    return
                messages.append({"role": "user", "content": reply})
                continue
            for call in calls:
                function = call["function"]
                arguments = parse_arguments(function["arguments"])
                result = (
                    "Error: the arguments are not a JSON object."
                    if arguments is None
                    else await episode.call_tool(
                        function["name"], arguments, call_id=call["id"]
                    )
                )
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "content": result}
                )
        raise EpisodeCut("max_turns")

    async def _complete(
        self, episode: Episode, messages: list[dict[str, Any]]
    ) -> dict[str, Any]:
        body = {
            "model": self._blueprint.model,
            "messages": messages,
            "tools": self._tools,
        }
        episode.model_calls += 1
        url = f"{episode.path}/chat/completions"
        async with self._session.post(url, json=body) as response:
            text = await response.text()
            if response.status >= 400:
                if "context_length_exceeded" in text:
                    raise EpisodeCut("context_overflow")
                raise RolloutError(f"The gateway answered {response.status}: {text}")
        message: dict[str, Any] = json.loads(text)["choices"][0]["message"]
        return message

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._session.close()


class NativeAdapter(Adapter):
    """Training without a framework; the trained agent is exported elsewhere."""

    name = "native"

    def check(self) -> None:
        """Nothing beyond the base installation is needed."""

    def extract_tools(self, agent: Any) -> list[ToolSpec]:
        """Return the ``@tool`` methods of an object."""
        specs = tool_specs(type(agent))
        if not specs:
            raise UnsupportedError(f"{agent!r} has no methods marked with @tool.")
        return specs

    def create_environment(self, blueprint: Blueprint) -> RunnableAgent:
        """Build the loop.

        Raises:
            UnsupportedError: A factory was given; there is no framework to build in.
        """
        if blueprint.factory is not None:
            raise UnsupportedError(
                f"--agent {blueprint.factory} needs a framework; choose one with "
                "--framework."
            )
        return NativeAgent(blueprint)

    def wrap_agent(self, trained: Any, **options: Any) -> Any:
        """Refuse: a native agent has no framework to be given back to.

        Raises:
            UnsupportedError: Always; says what to use.
        """
        raise UnsupportedError("Use to_langchain(), or serve the model folder.")
