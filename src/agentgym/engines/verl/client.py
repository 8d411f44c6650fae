"""VerlClient: start verl on its server, and send requests to it."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import httpx

from agentgym.engines.verl.protocol import PROTOCOL
from agentgym.errors import EngineError, UsageError

_SILENT_S = 60.0
_BUSY_TRIES = 30
_BUSY_S = 2.0
_STARTING_S = 1800.0


class VerlClient:
    """A client of verl's server at ``host:port``.

    verl runs from :meth:`start` until the client is closed.
    """

    def __init__(self, address: str, key: str, *, busy_s: float = _BUSY_S) -> None:
        self.address = address
        self._busy_s = busy_s
        self._http = httpx.Client(
            base_url=f"http://{address}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(None, connect=10.0),
            trust_env=False,
        )
        self._heard = threading.Condition()
        self._state: dict[str, Any] = {}
        self._lost, self._status = "", 0
        self._closed = threading.Event()

    def start(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Start verl, and wait until its inference servers answer.

        Return the result of :meth:`Cluster.state`, e.g. the servers' addresses.

        Raises:
            UsageError: The server refuses the request, e.g. since the key is wrong or
                another run uses it.
            EngineError: verl did not start.
        """
        body = {"protocol": PROTOCOL, "settings": dict(settings)}
        threading.Thread(
            target=self._hold, args=(body,), name="agentgym-verl", daemon=True
        ).start()
        with self._heard:
            self._heard.wait_for(lambda: bool(self._state or self._lost), _STARTING_S)
            if self._lost:
                raise self._error()
            if not self._state:
                raise EngineError(
                    f"verl at {self.address} has not started within "
                    f"{_STARTING_S / 60:.0f} minutes."
                )
            return self._state

    def ask(self, verb: str, **given: Any) -> Any:
        """Call a method of :class:`Cluster`, e.g. ``update``, and return its result.

        Raises:
            EngineError: verl has ended or failed, or still answers another request
                after many tries.
        """
        for _ in range(_BUSY_TRIES):
            if self._lost:
                raise self._error()
            try:
                answer = self._http.post(f"/{verb}", json=given)
                received = answer.json()
            except (httpx.HTTPError, ValueError, RuntimeError) as error:
                with self._heard:  # the thread of _hold may get the reason
                    self._heard.wait_for(lambda: bool(self._lost), 3.0)
                if self._lost:
                    raise self._error() from None
                raise EngineError(
                    f"verl's server at {self.address} did not answer /{verb} "
                    f"({type(error).__name__}: {error})."
                ) from None
            if answer.status_code == 200:
                return received
            if answer.status_code != 503:
                raise EngineError(self._refused(answer.status_code, received, verb))
            self._closed.wait(self._busy_s)
        raise EngineError(
            f"verl's server at {self.address} is overloaded: /{verb} was refused "
            f"{_BUSY_TRIES} times. Is another run using it?"
        )

    def close(self) -> None:
        """Close the connection; the server then ends verl."""
        self._closed.set()
        self._http.close()

    def _hold(self, body: dict[str, Any]) -> None:
        """Send ``body`` to ``/start``, and read the answer until verl ends.

        Each line of the answer has verl's state. The server sends lines as long as verl
        runs, and ends verl when this connection is closed.
        """
        why = "closed the connection"
        try:
            timeout = httpx.Timeout(_SILENT_S, connect=10.0)
            with self._http.stream(
                "POST", "/start", json=body, timeout=timeout
            ) as answer:
                if answer.status_code != 200:
                    received = json.loads(answer.read())
                    why = self._refused(answer.status_code, received, "start")
                    self._lose(why, refused=answer.status_code)
                    return
                for line in answer.iter_lines():
                    if self._closed.is_set():
                        return
                    state = json.loads(line)
                    if state["state"] == "failed":
                        self._lose(f"verl has failed: {state['error']}")
                        return
                    if state["state"] == "ready":
                        with self._heard:
                            self._state = state
                            self._heard.notify_all()
        except httpx.ReadTimeout:
            why = f"has been silent for {_SILENT_S:.0f} seconds"
        except httpx.ConnectError as error:
            why = f"does not answer ({error})"
        except (httpx.HTTPError, ValueError, KeyError, RuntimeError) as error:
            why = f"was lost ({type(error).__name__}: {error})"
        if not self._closed.is_set():
            self._lose(f"verl's server at {self.address} {why}.")

    def _lose(self, why: str, refused: int = 0) -> None:
        with self._heard:
            self._lost, self._status = why, refused
            self._heard.notify_all()

    def _error(self) -> EngineError | UsageError:
        if self._status in (400, 401, 404, 409):
            return UsageError(self._lost)
        return EngineError(self._lost)

    def _refused(self, status: int, received: Any, verb: str) -> str:
        why = (
            received.get("error", received) if isinstance(received, dict) else received
        )
        return f"verl's server at {self.address} refuses /{verb} ({status}): {why}."
