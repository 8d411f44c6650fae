"""Find the name under which a running server has an agent's model."""

from agentgym.models.reference import base_url, listed_models
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_ANSWERS_S = 5.0


def served_name(address: str, key: str | None, wanted: str) -> str:
    """Return the model name to request at an OpenAI-compatible server."""
    # A server may have been started without this name: then its only model is meant.
    url = base_url(address)
    cards = listed_models(url, key, _ANSWERS_S)
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
