"""PlainOpenAI: OpenAI's client without the field ``strict`` in tools."""

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAI

from agentgym.integrations.transport import announce


class PlainOpenAI(AsyncOpenAI):
    """OpenAI's client, but it sends tools without the field ``strict``.

    Frameworks add ``strict`` to tools. Chat templates would write this field into the
    prompt, so prompts could differ between training and later use. ``defaults`` are
    options for all requests that do not set them, e.g. ``temperature``. ``sync_http``
    is for frameworks that also need a sync client.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        http: httpx.AsyncClient | None = None,
        defaults: Mapping[str, Any] | None = None,
        sync_http: httpx.Client | None = None,
    ) -> None:
        given: dict[str, Any] = {} if http is None else {"http_client": http}
        super().__init__(base_url=base_url, api_key=api_key, max_retries=0, **given)
        self.defaults = dict(defaults or {})
        self.sync_http = sync_http
        self._role = ""

    def as_role(self, role: str) -> "PlainOpenAI":
        """Return a copy of the client that sends an agent's name with each request.

        Both clients use the same connections.
        """
        made = copy.copy(self)
        for name in [*vars(made)]:  # cached parts refer to the original client
            if isinstance(getattr(PlainOpenAI, name, None), cached_property):
                del vars(made)[name]
        made._role = role
        return made

    async def _prepare_options(self, options: Any) -> Any:
        if self._role:
            announce(self._role)
        return _prepared(options, self.defaults)


def sync_client(client: PlainOpenAI) -> OpenAI:
    """Return the sync version of a client."""

    class Plain(OpenAI):
        def _prepare_options(self, options: Any) -> Any:
            return _prepared(options, client.defaults)

    key, http = client.api_key, client.sync_http
    return Plain(base_url=client.base_url, api_key=key, max_retries=0, http_client=http)


def _prepared(options: Any, defaults: Mapping[str, Any]) -> Any:
    """Return a request's options, with defaults, and with tools without ``strict``."""
    body = options.json_data
    if isinstance(body, Mapping) and "messages" in body:
        filled = {**defaults, **body}
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
