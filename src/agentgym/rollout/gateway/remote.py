"""RemoteUpstream: answers from the servers that a trainer registered, e.g. vLLM."""

from typing import Any

from agentlightning.schemas import Model

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.forwarding import ForwardingUpstream
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.store.model_servers import ModelServers


class RemoteUpstream(ForwardingUpstream):
    """Forwards to the servers that a trainer registered, as Agent Lightning does.

    A rollout always goes to the same server, and exact token ids are asked for.
    """

    def __init__(self, servers: ModelServers, settings: GatewaySettings) -> None:
        super().__init__(settings)
        self._servers = servers

    @property
    def model_name(self) -> str:
        """The name under which servers are registered."""
        return self._settings.model_name

    def _server(self, call: ProxyCall) -> Model:
        server = self._servers.pick(self.model_name, call.rollout_id)
        if server is None:
            raise ApiError(
                503,
                f"No servers available for model {self.model_name!r}; register one "
                "at /api/models.",
                "no_servers",
                "server_error",
            )
        return server

    def _prepare(self, call: ProxyCall) -> dict[str, Any]:
        """Return the body to send: ids are asked for, sampling is the mode's."""
        body = {
            **call.body,
            "model": self.model_name,
            "temperature": self._settings.temperature(call.mode, call.body),
            "return_token_ids": True,
        }
        if call.mode == "train" and self._settings.include_log_probs:
            body["logprobs"] = True
        if call.mode == "train" and self._settings.include_routed_experts:
            body["return_routed_experts"] = True
        return body
