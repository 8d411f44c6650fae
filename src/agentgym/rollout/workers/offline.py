"""Block a worker's connections to other machines, and list the refused ones."""

import socket
import sys
import traceback
from collections.abc import Collection
from typing import Any

from agentgym.integrations.episode import episode_or_none
from agentgym.integrations.witness import saw
from agentgym.rollout.gateway.address import is_own

_CLIENTS = ("openai", "langchain_core")
_ANY = ("", "None", "0.0.0.0", "::")  # this machine, too


def keep_offline(allowed: Collection[str] = ()) -> None:
    """Refuse all later connections of this process to other machines.

    Those whose name is in ``allowed``, or ends in a dot and such a name, are made. Each
    refused one is noted, with whether a model client, e.g. OpenAI's, connected in a
    thread that does not belong to an episode.
    """
    find, addresses = socket.getaddrinfo, set(allowed)

    def is_allowed(name: str) -> bool:
        return name in addresses or any(name.endswith(f".{each}") for each in allowed)

    def found(host: Any, *args: Any, **named: Any) -> Any:
        answer = find(host, *args, **named)
        if is_allowed(_text(host)):
            addresses.update(str(each[4][0]) for each in answer)
        return answer

    def listen(event: str, values: tuple[Any, ...]) -> None:
        if event == "socket.getaddrinfo":
            host = values[0]
        elif event == "socket.connect" and isinstance(values[1], tuple):
            host = values[1][0]
        else:
            return
        name = _text(host)
        if name not in _ANY and not is_own(name) and not is_allowed(name):
            saw(host=name, outside=_is_outside())
            raise ConnectionRefusedError(
                f"{name} may not be reached in a trial: nothing has started yet"
            )

    if allowed:
        socket.getaddrinfo = found
    sys.addaudithook(listen)


def _text(host: Any) -> str:
    return host.decode(errors="replace") if isinstance(host, bytes) else str(host)


def _is_outside() -> bool:
    if episode_or_none() is not None:
        return False
    stack = traceback.walk_stack(None)
    names = (str(frame.f_globals.get("__name__")) for frame, _ in stack)
    return any(name.partition(".")[0] in _CLIENTS for name in names)
