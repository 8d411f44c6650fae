"""RoleChatOpenAI: the LangChain chat model of a trained agent."""

import json
from typing import Any, Self

from langchain_openai import ChatOpenAI

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import parse_arguments
from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.langchain.graphs import running_role
from agentgym.integrations.transport import speaker

_SENT_AS_THEY_ARE = ("messages", "tools")


class RoleChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` whose requests name the calling agent, as in training.

    So the agent's own LoRA adapter answers. ``roles`` are the agents that the server
    has adapters for; None names every agent.
    """

    roles: tuple[str, ...] | None = ()

    @classmethod
    def at(cls, endpoint: TrainedEndpoint, roles: tuple[str, ...] | None) -> Self:
        """Return a model that asks an endpoint; ``roles`` is the attribute."""
        options: dict[str, Any] = {
            "roles": roles,
            "model": endpoint.model,
            "base_url": endpoint.base_url,
            "api_key": lambda: endpoint.api_key,
            "temperature": endpoint.temperature,
            "max_completion_tokens": endpoint.max_tokens,
            "use_responses_api": False,
        }
        if endpoint.transport is not None:
            options |= {
                "http_client": endpoint.sync_http(),
                "http_async_client": endpoint.http(),
                "max_retries": 0,
                "openai_proxy": "",  # else that of the environment, which is refused
                "stream_chunk_timeout": None,
                "stream_usage": True,
            }
        return cls(**options)

    def _get_request_payload(self, input_: Any, **options: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, **options)
        role = speaker() or running_role() or DEFAULT_AGENT
        if self.roles is None or role in self.roles:
            payload["model"] = f"{payload['model']}/{role}"
        return sent_unchecked(payload)

    def _convert_chunk_to_generation_chunk(self, chunk: Any, *args: Any) -> Any:
        # LangChain repairs broken JSON in streams and would run the call. The policy's
        # arguments come whole; quoted, they stay invalid.
        is_of_policy = self.roles is None
        for choice in (chunk.get("choices") or ()) if is_of_policy else ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                written = call["function"]["arguments"]
                if parse_arguments(written) is None:
                    call["function"]["arguments"] = json.dumps(written)
        return super()._convert_chunk_to_generation_chunk(chunk, *args)


def sent_unchecked(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its messages and tools in the argument ``extra_body``.

    The openai package sends them unchecked. In other arguments, the package would
    compare them with its type annotations, which takes several times longer than
    sending them. The JSON is the same.
    """
    if "messages" not in payload or "response_format" in payload:
        return payload  # another API, or openai needs the tools to parse
    plain = {key: payload[key] for key in _SENT_AS_THEY_ARE if key in payload}
    body = {**plain, **(payload.get("extra_body") or {})}
    rest = {key: payload[key] for key in payload.keys() - plain.keys()}
    return {**rest, "messages": [], "extra_body": body}
