"""ApiProvider: send requests to a provider's HTTP API, and keep the key secret."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
_BUSY = 429
_LATER = frozenset({408, 425, *range(500, 600)})
"""HTTP statuses after which the same request may succeed later."""


class _BusyError(UnreachableError):
    """The provider did nothing, since it gets too many requests."""


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
        url = None
        with suppress(httpx.InvalidURL):
            url = httpx.URL(given)
        is_plain = url is not None and not (url.userinfo or url.query or url.fragment)
        if not (url and url.host and is_plain) or (
            url.scheme != "https"
            and not (url.scheme == "http" and url.host in _LOOPBACK)
        ):
            raise ComputeError(
                f"{variable} = {given!r}: the key in {self.key} is sent there, so it "
                "must begin with https://, or with http:// and be this machine "
                "(127.0.0.1, localhost). Give scheme, host and path alone, as in "
                f"{self.url}."
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
        nothing. ``read`` parses the answer.
        """
        for attempt in range(1, _TRIES + 1):
            try:
                with understood(self.name):
                    return read(self._answer(self._send("POST", path, body, {})))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise UnreachableError(
                    f"{self.name} cannot be reached: {self._clean(error)}."
                ) from None
            except _BusyError as error:
                self._pause(attempt, error)
            except (httpx.HTTPError, ComputeRefusedError, UnreachableError) as error:
                if isinstance(error, ComputeRefusedError) and error.status >= 400:
                    raise
                raise UnclearLaunchError(
                    f"{self.name} was asked for a machine, and the outcome is not "
                    f"known: {self._clean(error)}."
                ) from None
        raise ComputeRefusedError(
            f"{self.name} takes no more requests at present (429, {_TRIES} times). "
            "Try again in a few minutes.",
            _BUSY,
        )

    def _pause(self, attempt: int, error: Exception) -> None:
        """Wait before the next attempt, as long as the provider asked."""
        asked = error.wait_s if isinstance(error, UnreachableError) else None
        time.sleep(min(_WAIT_CAP_S, asked or self.backoff_s * 2**attempt))

    def _send(
        self, method: str, path: str, body: Any, params: dict[str, str]
    ) -> httpx.Response:
        url, key = self._address() + path, self._secret()
        time.sleep(max(0.0, self._last + self.interval_s - time.monotonic()))
        self._last = time.monotonic()
        headers = {
            "Authorization": f"Bearer {key}",
            "User-Agent": f"agentgym/{__version__}",
        }
        with httpx.Client(timeout=self.timeout_s, headers=headers) as client:
            return client.request(method, url, json=body, params=params or None)

    def _answer(self, response: httpx.Response) -> dict[str, Any]:
        """Parse a response, and return its JSON object."""
        status, found = response.status_code, None
        with suppress(ValueError):
            found = response.json() if response.content else {}
        answer: dict[str, Any] = found if isinstance(found, dict) else {}
        error = answer.get("error")
        said = self._clean(_message(answer) if answer else response.text)
        if status == _BUSY:
            raise _BusyError(said, _seconds(response))
        if status in _LATER or (found is None and status < 400):
            raise UnreachableError(f"status {status}, {said!r}", _seconds(response))
        if status == 401:
            raise ComputeRefusedError(
                f"{self.name} refused the key in {self.key} (status 401): {said!r}. Is "
                f"it whole, and is it one of {self.name}'s?",
                status,
            )
        if not 200 <= status < 300 or not isinstance(found, dict):
            code = str(error.get("code", "")) if isinstance(error, dict) else ""
            raise ComputeRefusedError(
                f"{self.name} refused (status {status}): {said}", status, code
            )
        return answer

    def _clean(self, said: object) -> str:
        """Return a message without the API key, cut to 300 characters."""
        text = str(said).replace(self._secret(), "[key]")
        return shortened(text) or type(said).__name__


def _message(found: dict[str, Any]) -> str:
    """Return the error message in an answer."""
    error, errors = found.get("error"), found.get("errors")
    source = error if isinstance(error, dict) else found
    names = ("message", "suggestion", "title", "detail")
    parts = [source.get(name) for name in names]
    parts += errors if isinstance(errors, list) else []
    return ": ".join(str(part) for part in parts if part) or json.dumps(found)


def _seconds(response: httpx.Response) -> float | None:
    """Return the seconds in ``Retry-After``; None if it is not a number."""
    with suppress(KeyError, ValueError):
        return max(0.0, float(response.headers["Retry-After"]))
    return None
