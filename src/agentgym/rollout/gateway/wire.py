"""What comes over the wire: JSON that can be stored, and names that can be written."""

from typing import Any

import orjson
from aiohttp import web
from pydantic_core import from_json

from agentgym.core.openai import ApiError

MOST_NESTED = 200
"""Objects and lists within each other; what is deeper, no one could read back."""


def load_json(raw: bytes) -> Any:
    """Parse JSON that can be stored and read back as it is.

    Raises:
        ValueError: It is no JSON (NaN and lone surrogates are none), is nested too
            deep, or has a number beyond what 64 bits hold.
    """
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        told = str(error)
        if told.startswith("recursion limit"):
            told = f"it is nested more than {MOST_NESTED} deep"
        raise ValueError(told) from None
    try:
        orjson.dumps(value)
        orjson.loads(raw)  # who reads it back takes no 1e400, which is one more float
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return value


async def read_json(request: web.BaseRequest, empty: bytes = b"") -> Any:
    """Return the body of a request, or of one without a body what ``empty`` holds.

    Raises:
        ApiError: 422; it cannot be stored.
    """
    try:
        return load_json(await request.read() or empty)
    except ValueError as error:
        told = f"Invalid JSON in request body: {error}"
        raise ApiError(422, told, "invalid_json") from None


def is_writable(text: str) -> bool:
    """Say whether a text from a header or an address is Unicode that can be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
