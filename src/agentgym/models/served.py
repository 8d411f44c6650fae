"""Find the name of an agent's model at a running server."""

from typing import Any

from agentgym.models.reference import base_url
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_ANSWERS_S = 5.0


def served_name(address: str, key: str | None, wanted: str) -> str:
    """Return the model name to request at an OpenAI-compatible server.

    That is ``wanted`` if the server lists it, or lists nothing. Otherwise it is the
    only model listed, or the only adapter: the server may have been started without a
    name.

    Args:
        address: Base URL, ``http://host:8000/v1``.
        key: The server's key.
        wanted: The default name of the agent's model.

    Raises:
        UsageError: The address is not one.
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
    """Return the models that a server lists; empty if it does not answer."""
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
