"""Asking a provider's HTTP API: reconnect where it is safe, and no key in any word."""

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
"""Statuses of requests that may succeed later."""


def key_from(variable: str, name: str, where: str) -> str:
    """Return the key that an environment variable holds.

    Args:
        variable: Its name.
        name: The provider's, as users type it.
        where: The address at which keys are made.

    Raises:
        ComputeError: There is none, or it can be no key.
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
    """Return the address of a provider's API: that of a variable, or the usual one.

    The key is sent there. So another address must be encrypted or this machine, and
    may not come from the file ``.env``, which a folder of another user may have.

    Args:
        variable: Its name.
        usual: The address without it.
        key: Name of the variable with the key, for messages.

    Raises:
        ComputeError: The key may not be sent there.
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
    """Raise a ComputeRefusedError for the errors of parsing an unexpected answer."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ComputeRefusedError(
            f"Unexpected answer from {name} ({error!r}). A newer AgentGym may know it.",
            200,
        ) from None


@dataclass
class Api:
    """Requests to one provider, with its key as bearer.

    Attributes:
        name: The provider's, for messages.
        url: Base URL, to which paths are appended.
        key: Never part of an error, a log line or a repr.
        variable: Where the key comes from, for messages.
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
        """Return the answer to a request that may be repeated.

        Broken connections, 429, 5xx and pages instead of JSON are tried again
        with growing waits; a server that asks for a wait is given it, up to a minute.

        Raises:
            ComputeRefusedError: The provider said no.
            UnreachableError: No answer, however often it was asked.
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
        """Return the answer to a POST that must not be repeated blindly.

        Only a 429, which says that nothing was done, is tried again. That nothing was
        done is believed of a 4xx alone.

        Args:
            path: Asked.
            body: Sent, as JSON.
            read: Parses the answer; may raise the errors of lookups.

        Raises:
            ComputeRefusedError: The provider said no: nothing was done.
            UnclearLaunchError: It was sent, and there was no answer, or none that can
                be read.
            UnreachableError: It was never sent.
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
        """Return the JSON object of a response.

        Raises:
            UnreachableError: It may be another one later; ``wait_s`` if it says when.
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
        """Return the message in an error's body, in any of the usual shapes."""
        if not isinstance(found, dict):
            return response.text
        error = found.get("error")
        if isinstance(error, dict):
            message = [error.get("message"), error.get("suggestion")]
        else:
            message = [found.get("title"), found.get("detail"), *_texts(found)]
        return ": ".join(str(part) for part in message if part) or json.dumps(found)

    def _clean(self, said: object) -> str:
        """Return words without the key, on one line, and not too many."""
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
    """Return the seconds of a Retry-After; None if it gives none."""
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
