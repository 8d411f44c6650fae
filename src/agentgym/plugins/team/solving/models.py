"""Choose a chat model for each role of the team, from model names."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentgym.errors import MissingExtraError, NotFoundError, UsageError
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.models.reference import (
    PROVIDERS,
    is_local,
    is_remote,
    resolve_model,
)

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

ROLES = ("supervisor", "generator", "reviewer", "executor")
MAX_TOKENS = 4_096
"""Maximum number of tokens of one answer."""
REQUEST_S = 180.0
_POLICY_TOKENS = 160

_SMALL = (
    "The shipped policy chooses tools and fills in their arguments; it knows little "
    "English and cannot write code. The rules of the team take the turns that it "
    "cannot use. Use it to try the team out, or train it for the other roles and give "
    "the generator a model that writes: --models generator=openai:NAME."
)
_WHICH = (
    "Name a model: openai:NAME or anthropic:NAME with its key in the environment, the "
    "address of an OpenAI-compatible server, http://host:8000/v1#NAME, a folder with a "
    "model, a trained agent, or nano, the shipped policy."
)


def chat_models(
    model: "str | BaseChatModel | None" = None,
    models: "Mapping[str, str | BaseChatModel] | None" = None,
    agent: Any = None,
) -> "tuple[dict[str, BaseChatModel], list[str]]":
    """Return each role's chat model, by default ``model`` or ``agent``, and notes."""
    FRAMEWORKS.get("langchain").check()
    by_role = dict(models or {})
    for role in by_role:
        if role not in ROLES:
            raise NotFoundError("role", role, ROLES)
    if model is not None and agent is not None:
        raise UsageError(
            "Give a model or a trained agent for the other roles, not both."
        )
    usual = model if agent is None else agent
    missing = [role for role in ROLES if role not in by_role]
    if missing and (usual is None or usual == ""):
        raise UsageError(f"No model for {', '.join(missing)}. {_WHICH}")
    made: dict[Any, BaseChatModel] = {}
    notes: list[str] = []
    found: dict[str, BaseChatModel] = {}
    for role in ROLES:
        named: Any = by_role.get(role, usual)
        key = named if isinstance(named, str) else id(named)
        if key not in made:
            made[key] = _chat_model(named)
            if _is_small(named):
                notes.append(_SMALL)
        found[role] = made[key]
    return found, list(dict.fromkeys(notes))


def _is_small(named: Any) -> bool:
    from agentgym.train.trained_agent import TrainedAgent

    if isinstance(named, TrainedAgent):
        named = named.provenance.config.get("model", "nano")
    return bool(named == "nano")


def _chat_model(named: Any) -> "BaseChatModel":
    from langchain_core.language_models import BaseChatModel

    from agentgym.train.trained_agent import TrainedAgent

    if isinstance(named, BaseChatModel):
        return named
    if isinstance(named, TrainedAgent):
        return named.chat_model()
    if not isinstance(named, str) or not named.strip():
        raise UsageError(f"{named!r} names no model. {_WHICH}")
    return _of_server(named) if is_remote(named) else _of_policy(named)


def _of_server(spec: str) -> "BaseChatModel":
    endpoint = resolve_model(spec)
    if len(endpoint.servers) > 1:
        raise UsageError(f"{spec!r} names several servers; a role asks one: name it.")
    if spec.lower().startswith("anthropic:"):
        try:
            from langchain_anthropic import ChatAnthropic
        except ImportError:
            raise MissingExtraError("anthropic", "A model of Anthropic's") from None
        # The SDK adds /v1 to its base URL.
        url = endpoint.servers[0].removesuffix("/v1")
        made: BaseChatModel = ChatAnthropic(
            model=endpoint.model,
            api_key=endpoint.api_key or "none",  # a proxy may have its own
            base_url=url,
            max_tokens=MAX_TOKENS,
            timeout=REQUEST_S,
        )
        return made
    from langchain_openai import ChatOpenAI

    is_openai = endpoint.servers[0] == PROVIDERS["openai"]
    name = "max_completion_tokens" if is_openai else "max_tokens"
    limit: dict[str, Any] = {name: MAX_TOKENS}
    key = endpoint.api_key or "none"
    return ChatOpenAI(
        model=endpoint.model,
        base_url=endpoint.servers[0],
        api_key=lambda: key,
        timeout=REQUEST_S,
        **limit,
    )


def _of_policy(named: str) -> "BaseChatModel":
    """Load a trained agent or a local model, and return it as a chat model."""
    from agentgym.engines.local.support import load_policy
    from agentgym.integrations.export import TrainedEndpoint
    from agentgym.integrations.langchain.model import RoleChatOpenAI
    from agentgym.serving.in_process import PolicyTransport
    from agentgym.train.trained_agent import TrainedAgent
    from agentgym.train.versions import AGENT_FILE

    is_saved = os.path.isfile(os.path.join(os.path.expanduser(named), AGENT_FILE))
    if named == "nano" or (is_local(named) and not is_saved):
        policy = load_policy(named)
        usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": _POLICY_TOKENS}
        answers = PolicyTransport(policy, policy.model_name, **usual)
        endpoint = TrainedEndpoint(policy.model_name, **usual, transport=answers)
        return RoleChatOpenAI.at(endpoint, None)
    return TrainedAgent.load(named).chat_model()
