"""ApiProvider: send requests to a provider's HTTP API, and keep the key secret."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import httpx
from dotenv import dotenv_values

from agentgym.errors import (
    ComputeError,
    ComputeRefusedError,
    UnclearLaunchError,
    UnreachableError,
)
from agentgym.plugins.cloud.base import Machine, Provider
from agentgym.version import __version__

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_TRIES = 5
_WAIT_CAP_S = 60.0
_SHOWN = 300
_NOT_FOUND = 404
_LATER = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP statuses after which the same request may succeed later."""


def shortened(said: object) -> str:
    """Return a message on one line, cut to 300 characters, without a final dot."""
    text = " ".join(str(said).split())
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…").rstrip(".")


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Context manager for code that parses an answer of the provider ``name``."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ComputeRefusedError(
            f"Unexpected answer from {name} ({error!r}). A newer AgentGym may know it.",
            200,
        ) from None


@contextmanager
def if_it_exists() -> Iterator[None]:
    """Context manager that ignores the error of a machine that does not exist."""
    try:
        yield
    except ComputeRefusedError as error:
        if error.status != _NOT_FOUND:
            raise


def id_of(machine: Machine) -> str:
    """Return a machine's id, after checking that it is safe to use in a URL."""
    if not re.fullmatch(r"[\w-]+", machine.id):
        raise ComputeError(f"{machine.id!r} is not the id of a machine.")
    return machine.id


class ApiProvider(Provider):
    """A provider with an HTTP API that takes the API key as a bearer token."""

    url: ClassVar[str]
    url_variable: ClassVar[str]
    keys_at: ClassVar[str]
    interval_s: ClassVar[float] = 0.0
    backoff_s: ClassVar[float] = 1.0
    timeout_s: ClassVar[float] = 60.0

    def __init__(self) -> None:
        self._last = -math.inf

    def check(self) -> None:
        """Check that the API key is set, and that it is safe to send."""
        self._secret()
        self._address()

    def _secret(self) -> str:
        key = os.environ.get(self.key, "").strip()
        if not key:
            raise ComputeError(
                f"{self.name} needs a key: set the environment variable {self.key}, or "
                f"put it into the file .env. Keys are made at {self.keys_at}."
            )
        if not all("!" <= letter <= "~" for letter in key):
            raise ComputeError(
                f"{self.key} holds a space or another character that no key has. Copy "
                f"it again from {self.keys_at}."
            )
        return key

    def _address(self) -> str:
        """Return the base URL from the environment variable, or else ``url``.

        The API key is sent to this address. So an address in the variable must use
        https or be on this machine. The variable must not be set in the file ``.env``,
        which other people may have written.
        """
        variable = self.url_variable
        given = os.environ.get(variable, "").strip().rstrip("/")
        if not given:
            return self.url
        try:
            url = httpx.URL(given)
        except httpx.InvalidURL as error:
            raise ComputeError(
                f"{variable} = {given!r} is not a URL: {error}."
            ) from None
        is_here = url.scheme == "http" and url.host in _LOOPBACK
        is_safe = url.scheme == "https" or is_here
        if not (url.host and is_safe) or url.userinfo or url.query or url.fragment:
            raise ComputeError(
                f"{variable}: the key in {self.key} is sent there, so it must begin "
                "with https://, or with http:// and be this machine (127.0.0.1, "
                f"localhost). Give scheme, host and path alone, as in {self.url}."
            )
        if dotenv_values(".env").get(variable):
            raise ComputeError(
                f"{variable} is set in the file .env. The key in {self.key} would be "
                f"sent to {url.host}, so this file is not used: export it in your "
                "shell."
            )
        return given

    def ask(
        self, method: str, path: str, body: Any = None, **params: str
    ) -> dict[str, Any]:
        """Send a request that is safe to repeat; return the JSON object of the answer.

        ``params`` are the parameters in the URL's query. The request is sent again
        after a broken connection, a status 408, 425, 429 or 5xx, or an answer that is
        not JSON. The wait before each retry is twice the last one, or follows
        ``Retry-After``; it is at most a minute.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                return self._answer(self._send(method, path, body, params))
            except (httpx.HTTPError, UnreachableError) as error:
                if attempt == _TRIES:
                    raise UnreachableError(
                        f"{self.name} gave no answer to {method} {path}, asked "
                        f"{_TRIES} times: {self._clean(error)}."
                    ) from None
                self._pause(attempt, error)
        raise AssertionError("unreachable")

    def ask_once[T](
        self, path: str, body: Any, read: Callable[[dict[str, Any]], T]
    ) -> T:
        """Send a POST that must not be executed twice, such as a launch.

        It is sent again only after status 429, which means that the provider did
        nothing.
        """
        status = 0
        for attempt in range(1, _TRIES + 1):
            try:
                response = self._send("POST", path, body, {})
                status = response.status_code
                with understood(self.name):
                    return read(self._answer(response))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise UnreachableError(
                    f"{self.name} cannot be reached: {self._clean(error)}."
                ) from None
            except (httpx.HTTPError, ComputeRefusedError, UnreachableError) as error:
                if isinstance(error, ComputeRefusedError) and status >= 400:
                    raise
                if not (isinstance(error, UnreachableError) and status == 429):
                    raise UnclearLaunchError(
                        f"{self.name} was asked for a machine, and the outcome is not "
                        f"known: {self._clean(error)}."
                    ) from None
                if attempt < _TRIES:
                    self._pause(attempt, error)
        raise ComputeRefusedError(
            f"{self.name} takes no more requests at present (429, {_TRIES} times). "
            "Try again in a few minutes.",
            429,
        )

    def _pause(self, attempt: int, error: Exception) -> None:
        """Wait before the next attempt, as long as the provider asked."""
        asked = error.wait_s if isinstance(error, UnreachableError) else None
        time.sleep(min(_WAIT_CAP_S, asked or self.backoff_s * 2**attempt))

    def _send(
        self, method: str, path: str, body: Any, params: dict[str, str]
    ) -> httpx.Response:
        url, key = self._address() + path, self._secret()
        wait = self._last + self.interval_s - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._last = time.monotonic()
        headers = {
            "Authorization": f"Bearer {key}",
            "User-Agent": f"agentgym/{__version__}",
        }
        with httpx.Client(timeout=self.timeout_s, headers=headers) as client:
            return client.request(method, url, json=body, params=params or None)

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        """Parse a response, and return its JSON object."""
        status = response.status_code
        try:
            found = response.json() if response.content else {}
        except ValueError:
            found = None
        said = self._clean(self._said(found, response))
        if status in _LATER or (found is None and status < 400):
            after = response.headers.get("Retry-After")
            raise UnreachableError(f"status {status}, {said!r}", _seconds(after))
        if status == 401:
            raise ComputeRefusedError(
                f"{self.name} refused the key in {self.key} (status 401): {said!r}. Is "
                f"it whole, and is it one of {self.name}'s?",
                401,
            )
        if not 200 <= status < 300 or not isinstance(found, dict):
            error = found.get("error") if isinstance(found, dict) else None
            code = str(error.get("code", "")) if isinstance(error, dict) else ""
            raise ComputeRefusedError(
                f"{self.name} refused (status {status}): {said}", status, code
            )
        return found

    @staticmethod
    def _said(found: Any, response: httpx.Response) -> str:
        """Return a response's error message."""
        if not isinstance(found, dict):
            return response.text
        error = found.get("error")
        if isinstance(error, dict):
            message = [error.get("message"), error.get("suggestion")]
        else:
            errors = found.get("errors")
            more = errors if isinstance(errors, list) else []
            message = [found.get("title"), found.get("detail"), *more]
        return ": ".join(str(part) for part in message if part) or json.dumps(found)

    def _clean(self, said: object) -> str:
        """Return a message without the API key, cut to 300 characters."""
        text = str(said).replace(self._secret(), "[key]")
        return shortened(text) or type(said).__name__


def _seconds(text: str | None) -> float | None:
    """Parse ``Retry-After`` as seconds; return None if it is not a number."""
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
