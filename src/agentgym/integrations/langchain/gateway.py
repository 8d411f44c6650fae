"""LangChain's ``ChatOpenAI`` for many calls to the gateway: the same one, cheaper."""

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_openai import ChatOpenAI

from agentgym.integrations.langchain.graphs import running_role
from agentgym.integrations.transport import announce

_SENT_AS_THEY_ARE = ("messages", "tools")


class GatewayChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` whose messages and tools reach the gateway as they are.

    Requests have the name of the speaking agent of a team.

    The openai package compares every request with its type annotations, to
    rename keys that a chat completion does not have. For the tools of an agent that
    takes several times longer than sending them. Fields in ``extra_body`` are sent
    unchanged, in the same places of the same JSON.
    """

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if (role := running_role()) is not None:
            announce(role)
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "messages" not in payload or "response_format" in payload:
            return payload  # another API; or the package needs the tools itself
        plain = {key: payload[key] for key in _SENT_AS_THEY_ARE if key in payload}
        body = {**plain, **(payload.get("extra_body") or {})}
        rest = {key: payload[key] for key in payload.keys() - plain.keys()}
        return {**rest, "messages": [], "extra_body": body}
