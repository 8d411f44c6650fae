"""Api: send requests to a provider's HTTP API, with retries; keep the key secret."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
from dotenv import dotenv_values

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    UnclearLaunchError,
    UnreachableError,
)
from agentgym.version import __version__

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_TRIES = 5
_WAIT_CAP_S = 60.0
_SHOWN = 300
_LATER = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP statuses after which the same request may succeed later."""


def key_from(variable: str, name: str, where: str) -> str:
    """Return a provider's API key from an environment variable.

    Args:
        variable: Name of the environment variable.
        name: The provider's name on the command line.
        where: Address of the web page that creates keys.

    Raises:
        ComputeError: The variable is empty, or its value cannot be a key.
    """
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ComputeError(
            f"{name} needs a key: set the environment variable {variable}, or put it "
            f"into the file .env. Keys are made at {where}."
        )
    if not all("!" <= letter <= "~" for letter in key):
        raise ComputeError(
            f"{variable} holds a space or another character that no key has. Copy it "
            f"again from {where}."
        )
    return key


def url_from(variable: str, usual: str, key: str) -> str:
    """Return the address of a provider's API.

    It is the value of an environment variable, or the default. The key is sent to this
    address. So the variable's address must use https or be on this machine, and the
    variable may not be set in the file ``.env``, which others may have written.

    Args:
        variable: Name of the environment variable.
        usual: The default address.
        key: Name of the variable with the API key, for messages.

    Raises:
        ComputeError: The key may not be sent to this address.
    """
    given = os.environ.get(variable, "").strip().rstrip("/")
    if not given:
        return usual
    try:
        url = httpx.URL(given)
    except httpx.InvalidURL as error:
        raise ComputeError(f"{variable} = {given!r} is not a URL: {error}.") from None
    is_here = url.scheme == "http" and url.host in _LOOPBACK
    if not url.host or not (url.scheme == "https" or is_here):
        raise ComputeError(
            f"{variable} = {given!r}: the key in {key} is sent there, so it must begin "
            "with https://, or with http:// and be this machine (127.0.0.1, localhost)."
        )
    if url.userinfo or url.query or url.fragment:
        raise ComputeError(
            f"{variable}: give scheme, host and path alone, as in {usual}."
        )
    if dotenv_values(".env").get(variable):
        raise ComputeError(
            f"{variable} is set in the file .env. The key in {key} would be sent to "
            f"{url.host}, so this file is not used: export it in your shell."
        )
    return given


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Raise ComputeRefusedError if the block cannot parse a provider's answer."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ComputeRefusedError(
            f"Unexpected answer from {name} ({error!r}). A newer AgentGym may know it.",
            200,
        ) from None


@dataclass
class Api:
    """Sends requests to one provider, with its API key as bearer token.

    Attributes:
        name: The provider's name, for messages.
        url: Base URL, to which paths are appended.
        key: The API key; never part of an error, a log line or a repr.
        variable: Name of the environment variable with the key, for messages.
        interval_s: Least seconds between two requests.
    """

    name: str
    url: str
    key: str = field(repr=False)
    variable: str
    interval_s: float = 0.0
    backoff_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 60.0
    _last: float = field(default=-math.inf, init=False, repr=False)

    def ask(
        self, method: str, path: str, body: Any = None, **params: str
    ) -> dict[str, Any]:
        """Send a request that may be repeated, and return its answer.

        ``params`` are the parameters in the URL's query.

        The request is sent again after broken connections, statuses 408, 425, 429 and
        5xx, and answers other than JSON. The waits between attempts grow, or are those
        of ``Retry-After``; each is at most a minute.

        Raises:
            ComputeRefusedError: The provider refused the request.
            UnreachableError: There was no answer after all retries.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return self._answer(self._send(method, path, body, params))
            except (httpx.HTTPError, UnreachableError) as error:
                asked = None
                if isinstance(error, UnreachableError):
                    asked = error.wait_s
                if attempt == _TRIES:
                    raise UnreachableError(
                        f"{self.name} gave no answer to {method} {path}, asked "
                        f"{_TRIES} times: {self._clean(error)}."
                    ) from None
            time.sleep(min(_WAIT_CAP_S, asked or self.backoff_s * 2**attempt))
        raise AssertionError("unreachable")

    def ask_once[T](
        self, path: str, body: Any, read: Callable[[dict[str, Any]], T]
    ) -> T:
        """Send a POST that may not be repeated, and return its parsed answer.

        Only status 429 is retried, since it means that the provider did nothing.

        Args:
            path: The request's path.
            body: The request's JSON.
            read: Parses the answer. Its errors, such as KeyError, mean that the answer
                is not readable.

        Raises:
            ComputeRefusedError: The provider refused, and did nothing.
            UnclearLaunchError: The request was sent without a readable answer, so it
                may have been executed.
            UnreachableError: The request was never sent.
        """
        unclear = f"{self.name} was asked for a machine, and the outcome is not"
        unclear += " known:"
        for attempt in range(1, _TRIES + 1):
            try:
                response = self._send("POST", path, body, {})
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise UnreachableError(
                    f"{self.name} cannot be reached: {self._clean(error)}."
                ) from None
            except httpx.HTTPError as error:
                raise UnclearLaunchError(f"{unclear} {self._clean(error)}.") from None
            try:
                with understood(self.name):
                    return read(self._answer(response))
            except ComputeRefusedError as error:
                if response.status_code >= 400:
                    raise
                raise UnclearLaunchError(f"{unclear} {self._clean(error)}.") from None
            except UnreachableError as error:
                if response.status_code != 429:
                    raise UnclearLaunchError(
                        f"{unclear} {self._clean(error)}."
                    ) from None
                asked = error.wait_s
            if attempt < _TRIES:
                time.sleep(min(_WAIT_CAP_S, asked or self.backoff_s * 2**attempt))
        raise ComputeRefusedError(
            f"{self.name} takes no more requests at present (429, {_TRIES} times). "
            "Try again in a few minutes.",
            429,
        )

    def _send(
        self, method: str, path: str, body: Any, params: dict[str, str]
    ) -> httpx.Response:
        wait = self._last + self.interval_s - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._last = time.monotonic()
        headers = {
            "Authorization": f"Bearer {self.key}",
            "User-Agent": f"agentgym/{__version__}",
        }
        with httpx.Client(timeout=self.timeout_s, headers=headers) as client:
            return client.request(
                method, self.url + path, json=body, params=params or None
            )

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        """Parse the JSON object of a response.

        Raises:
            ComputeRefusedError: The provider refused the request.
            UnreachableError: A retry may succeed, after ``wait_s`` seconds if they are
                known from ``Retry-After``.
        """
        status = response.status_code
        try:
            found = response.json() if response.content else {}
        except ValueError:
            found = None
        if status in _LATER or (found is None and status < 400):
            raise UnreachableError(
                f"status {status}, {self._clean(self._said(found, response))!r}",
                _seconds(response.headers.get("Retry-After")),
            )
        if status == 401:
            raise ComputeRefusedError(
                f"{self.name} refused the key in {self.variable} (status 401): "
                f"{self._clean(self._said(found, response))!r}. Is it whole, and is it "
                f"one of {self.name}'s?",
                401,
            )
        if not 200 <= status < 300 or not isinstance(found, dict):
            raise ComputeRefusedError(
                f"{self.name} refused (status {status}): "
                f"{self._clean(self._said(found, response))}",
                status,
                _code(found),
            )
        return found

    @staticmethod
    def _said(found: Any, response: httpx.Response) -> str:
        """Return a response's error message; ``found`` is its parsed JSON, if any."""
        if not isinstance(found, dict):
            return response.text
        error = found.get("error")
        if isinstance(error, dict):
            message = [error.get("message"), error.get("suggestion")]
        else:
            message = [found.get("title"), found.get("detail"), *_texts(found)]
        return ": ".join(str(part) for part in message if part) or json.dumps(found)

    def _clean(self, said: object) -> str:
        """Return a message on one line, shortened, without the API key."""
        text = " ".join(str(said).split()).replace(self.key, "[key]")
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return text.rstrip(".") or type(said).__name__


def _texts(found: dict[str, Any]) -> list[str]:
    errors = found.get("errors")
    return [str(each) for each in errors] if isinstance(errors, list) else []


def _code(found: Any) -> str:
    error = found.get("error") if isinstance(found, dict) else None
    return str(error.get("code", "")) if isinstance(error, dict) else ""


def _seconds(text: str | None) -> float | None:
    """Parse ``Retry-After`` as seconds; return None if it is not a number."""
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
