"""VllmServer: start vLLM, watch it, send it requests, and end all its processes."""

import os
import re
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any, Self

import httpx

from agentgym.core.config import TrainingConfig
from agentgym.engines.settings import log_file
from agentgym.errors import EngineError
from agentgym.plugins.vllm.environment import require_command
from agentgym.plugins.vllm.group import VllmSettings
from agentgym.plugins.vllm.process import SupervisedProcess
from agentgym.plugins.vllm.settings import (
    BASE,
    KEY_VARIABLE,
    command_line,
    free_port,
    own_environment,
    variables,
)
from agentgym.security.redaction import new_key

_MORE, _LESS = (
    "Raise gpus.memory_share, or lower vllm.max_model_len.",
    "Lower gpus.memory_share, vllm.max_num_seqs or vllm.max_model_len.",
)
# Advice for messages. A key is a part of vLLM's error message, in lower case.
_ADVICE = {
    "no available memory for the cache": _MORE,
    "larger than the maximum number of tokens that can be stored in kv cache": _MORE,
    "larger than the available kv cache memory": _MORE,
    "free memory on device": "Something else holds the GPU's memory, or "
    "gpus.memory_share is too much: lower it.",
    "available memory on node": "Something else holds the machine's memory, or "
    "gpus.memory_share is too much: lower it.",
    "out of memory": _LESS,
    "died unexpectedly": f"If the system killed it for want of memory: {_LESS}",
}
# An error in vLLM's log: the last line of a traceback, with or without the prefix of
# vLLM's logger, e.g. "(Worker pid=11) ERROR 11-24 09:52:49 [v.py:9] ValueError: ...".
# An error of pydantic goes on in the next line.
_ERROR = re.compile(
    r"^(?:\((?P<process>\w+)[^()]* pid=\d+\) ?)?"
    r"(?:ERROR \d\d-\d\d [\d:.]+ \[[^\]]*\] ?)?"
    r"(?P<said>vllm serve: error:.*|.* died unexpectedly.*"
    r"|(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?::.*(?:\n  \S.*)*|$))",
    re.MULTILINE,
)
# Words in error messages that only refer to another error.
_ELSEWHERE = ("root cause", "Executor failed")
# vLLM's processes, ordered by how much their errors explain, most first. Processes that
# are not listed only report that these have ended.
_WITNESSES = ("Worker", "VllmWorker", "EngineCore")
_SHOWN_LINES, _SHOWN, _SHOWN_ANSWER = 8, 2000, 500


def why_it_ended(text: str) -> str:
    """Return the error that ended vLLM, with advice for known errors.

    ``text`` is the part of the log to search. A worker's error is preferred, then one
    of the engine core, then one of the server. Of several errors of the same kind of
    process, it is the first, which caused the others. Without an error, return the
    last lines.
    """
    if found := min(_ERROR.finditer(text), default=None, key=_rank):
        said = f"says: {' '.join(found['said'].split())[:_SHOWN]}"
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        end = " | ".join(lines[-_SHOWN_LINES:])[-_SHOWN:]
        said = f"ends: {end or 'nothing'}"
    low = said.lower()
    advice = next((do for words, do in _ADVICE.items() if words in low), "")
    return f"{said.removesuffix('.')}. {advice}".rstrip()


def _rank(error: re.Match[str]) -> int:
    if any(part in error["said"] for part in _ELSEWHERE):
        return len(_WITNESSES) + 1
    if error["process"] in _WITNESSES:
        return _WITNESSES.index(error["process"])
    return len(_WITNESSES)


_STARTS_S = 1800.0  # vLLM may download the model, and compiles it
_ANSWERS_S = 600.0
_TURN_S = 0.2
_STARTS = 3
_TRIES = 8
_BUSY = frozenset({429, 503})
_BACKOFF_S, _BACKOFF_CAP_S = 0.5, 8.0
_TAKEN = "address already in use"


class VllmServer(SupervisedProcess):
    """Runs ``vllm serve`` on loopback, for this process only; use :meth:`start`.

    vLLM ends when this process ends, even if this process is killed.

    Attributes:
        address: The server's base URL.
        key: The server's API key.
        log: The file with vLLM's output.
        failure: Why vLLM cannot answer any more; empty if it can.
    """

    def __init__(self, config: TrainingConfig, port: int) -> None:
        program = require_command()
        super().__init__(log_file(config))
        self.address = f"http://127.0.0.1:{port}"
        self.key = new_key()
        self.failure = ""
        self._is_closing = False
        self._http = httpx.Client(
            base_url=self.address,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=httpx.Timeout(_ANSWERS_S, connect=5.0),
            trust_env=False,
        )
        environment = own_environment(os.environ) | variables(config)
        self._start(
            command_line(config, str(program), port),
            environment | {KEY_VARIABLE: self.key},
        )

    @classmethod
    def start(cls, config: TrainingConfig) -> Self:
        """Start vLLM, and wait until it answers."""
        wanted = VllmSettings.of(config).settings.get("port")
        for left in reversed(range(_STARTS)):
            server = cls(config, free_port(wanted))
            try:
                server._await()
            except BaseException as error:
                server.close()
                lost = isinstance(error, EngineError) and _TAKEN in str(error).lower()
                if lost and not wanted and left:
                    continue  # another process took the port first
                raise
            watch = threading.Thread(
                target=server._watch, name="agentgym-vllm", daemon=True
            )
            watch.start()
            return server
        raise AssertionError("unreachable: the last try returns or raises")

    def ask(self, verb: str, path: str, **given: Any) -> Any:
        """Send a request and return the answer's JSON, or its text if it is not JSON.

        Repeat the request while the server is busy. ``given`` are further arguments of
        ``httpx.Client.request``.
        """
        delay, said = _BACKOFF_S, ""
        for _ in range(_TRIES):
            try:
                answer = self._http.request(verb, path, **given)
            except (httpx.HTTPError, RuntimeError) as error:
                raise EngineError(self._lost(path, error)) from None
            if answer.is_success:
                with suppress(ValueError):
                    return answer.json()
                return answer.text
            said = f"{answer.status_code}, {answer.text[:_SHOWN_ANSWER]}"
            if answer.status_code not in _BUSY:
                break
            time.sleep(delay)
            delay = min(2 * delay, _BACKOFF_CAP_S)
        raise EngineError(f"vLLM refuses {path}: {said}. Its log is {self.log}.")

    def close(self) -> None:
        """End vLLM and all of its processes."""
        self._is_closing = True
        self._http.close()
        super().close()

    def _await(self) -> None:
        """Wait until the server answers, and check that this object started it."""
        until = time.monotonic() + _STARTS_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise EngineError(f"vLLM ended while it started. {self._last_words()}")
            with suppress(httpx.HTTPError):
                if self._http.get("/health", timeout=5.0).status_code == 200:
                    break
            time.sleep(_TURN_S)
        else:
            raise EngineError(
                f"vLLM did not answer within {_STARTS_S / 60:.0f} minutes. "
                f"{self._last_words()}"
            )
        if BASE not in self.models():  # it needs the key of this run's server
            raise EngineError(f"Another server answers at {self.address}.")
        self._begin = self.log.stat().st_size

    def models(self) -> list[str]:
        """Return the names of the server's models and adapters."""
        return [str(card["id"]) for card in self.ask("GET", "/v1/models")["data"]]

    def _watch(self) -> None:
        """Wait until vLLM ends; report the end unless :meth:`close` caused it."""
        code = self._process.wait()
        if not self._is_closing:
            self._kill_group()  # if its supervisor was killed, vLLM may still run
            self.failure = f"vLLM has ended (exit code {code}). {self._last_words()}"

    def _lost(self, path: str, error: Exception) -> str:
        if not self._is_closing:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)  # it may be about to end
        if self._process.poll() is not None:
            return f"vLLM has ended. {self._last_words()}"
        why = f"{type(error).__name__}: {error}"
        return f"vLLM does not answer {path} ({why}). {self._last_words()}"

    def _last_words(self) -> str:
        """Return the error in vLLM's log that ended vLLM, with advice."""
        return f"Its log, {self.log}, {why_it_ended(self._log_text())}"
