"""Parse the JSON of requests; refuse values that cannot be stored unchanged."""

from typing import Any

import orjson
from aiohttp import web
from pydantic_core import from_json

from agentgym.core.openai import ApiError

MOST_NESTED = 200
"""Maximum nesting depth of objects and lists; deeper JSON could not be read back."""


def invalid(message: str, code: str = "invalid_value", status: int = 400) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(status, message, code)


def load_json(raw: bytes) -> Any:
    """Parse JSON; refuse values that could not be stored and read back unchanged."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        message = str(error)
        if message.startswith("recursion limit"):
            message = f"it is nested more than {MOST_NESTED} deep"
        raise ValueError(message) from None
    try:
        orjson.dumps(value)
        orjson.loads(raw)  # other parsers refuse 1e400, and other numbers beyond floats
    except (TypeError, ValueError) as error:
        raise ValueError(str(error)) from None
    return value


async def read_json(request: web.BaseRequest, empty: bytes = b"") -> Any:
    """Parse a request's body as JSON; an empty body stands for ``empty``."""
    try:
        return load_json(await request.read() or empty)
    except ValueError as error:
        message = f"Invalid JSON in request body: {error}"
        raise invalid(message, "invalid_json", 422) from None


def is_writable(text: str) -> bool:
    """Return whether a header or URL text can be stored (is valid UTF-8)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
