"""OpenAI's client on the gateway, on a policy in this process, or on a server."""

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import httpx
from openai import AsyncOpenAI

from agentgym.core.agent import Trained
from agentgym.integrations.base import Blueprint
from agentgym.integrations.transport import PLACEHOLDER, announce
from agentgym.models.served import served_name

_IN_PROCESS = "http://policy.invalid/v1"


class PlainOpenAI(AsyncOpenAI):
    """OpenAI's client, whose tools reach the model with their schema alone.

    Frameworks add ``strict`` to tools; chat templates write it into the prompt, and a
    policy would read other tools than it was trained with.

    Args:
        base_url: Of the server.
        api_key: Of the server.
        http: Sends the requests; None makes a client of OpenAI's own.
        defaults: Options of requests that do not set them, e.g. ``temperature``.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        http: httpx.AsyncClient | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        given: dict[str, Any] = {} if http is None else {"http_client": http}
        super().__init__(base_url=base_url, api_key=api_key, max_retries=0, **given)
        self._defaults = dict(defaults or {})
        self._role = ""

    def as_role(self, role: str) -> "PlainOpenAI":
        """Return a client on the same connections that asks as one agent of several."""
        made = copy.copy(self)
        for name in [*vars(made)]:  # its parts that hold the client
            if isinstance(getattr(PlainOpenAI, name, None), cached_property):
                del vars(made)[name]
        made._role = role
        return made

    async def _prepare_options(self, options: Any) -> Any:
        if self._role:
            announce(self._role)
        body = options.json_data
        if isinstance(body, Mapping) and "messages" in body:
            filled = {**self._defaults, **body}
            if tools := body.get("tools"):
                filled["tools"] = [_without_strict(tool) for tool in tools]
            options.json_data = filled
        return options


def _without_strict(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or "strict" not in function:
        return tool
    kept = {key: function[key] for key in function if key != "strict"}
    return {**tool, "function": kept}


def gateway_client(blueprint: Blueprint, http: httpx.AsyncClient) -> PlainOpenAI:
    """Return a client whose requests go to the gateway, for the current episode.

    Args:
        blueprint: Names the gateway and its key.
        http: As :func:`~agentgym.integrations.transport.episode_client` makes it.
    """
    return PlainOpenAI(blueprint.gateway + PLACEHOLDER, blueprint.api_key, http)


def trained_client(
    trained: Trained, base_url: str | None, api_key: str | None
) -> tuple[PlainOpenAI, str]:
    """Return a client that a trained agent's model answers, and the model's name.

    Args:
        trained: The agent; sampled as it was measured where a request does not say.
        base_url: Of a server with its weights; None loads them into this process.
        api_key: Of the server.
    """
    spec = trained.spec
    if base_url is None:
        http = httpx.AsyncClient(transport=trained.transport(), timeout=None)
        return PlainOpenAI(_IN_PROCESS, "none", http), spec.served_name
    sampling = {"temperature": spec.temperature, "max_tokens": spec.max_tokens}
    client = PlainOpenAI(base_url, api_key or "none", defaults=sampling)
    return client, served_name(base_url, api_key, spec.served_name)
