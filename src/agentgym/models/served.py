"""Find the name under which a running server has an agent's model."""

from typing import Any

from agentgym.models.reference import base_url
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_ANSWERS_S = 5.0


def served_name(address: str, key: str | None, wanted: str) -> str:
    """Return the model name to request at an OpenAI-compatible server.

    If the server lists models, but not ``wanted``, it may have been started without
    this name. Then the only listed model or the only listed adapter is returned. In all
    other cases, ``wanted`` is returned.

    Args:
        address: The server's base URL, e.g. ``http://host:8000/v1``.
        key: API key of the server; None if it needs none.
        wanted: The default name of the agent's model.

    Raises:
        UsageError: ``address`` is not a server's address.
    """
    url = base_url(address)
    cards = _listed(url, key)
    names = [card["id"] for card in cards]
    if not names or wanted in names:
        return wanted
    adapters = [card["id"] for card in cards if card.get("parent")]
    for found in (names, adapters):
        if len(found) == 1:
            return str(found[0])
    logger.warning(
        "%s has no model %r, but %s. Start it with --served-model-name %s.",
        *(url, wanted, ", ".join(names[:10]), wanted),
    )
    return wanted


def _listed(url: str, key: str | None) -> list[dict[str, Any]]:
    """Return the models that a server lists; empty if the request fails."""
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(f"{url}/models", headers=headers, timeout=_ANSWERS_S)
        cards = answer.json()["data"] if answer.is_success else []
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError, KeyError):
        return []
    if not isinstance(cards, list):
        return []
    return [c for c in cards if isinstance(c, dict) and isinstance(c.get("id"), str)]
