"""TrainerProcess: start, watch and end Agent Lightning's trainer."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from agentgym.core.files import BEAT_S, Beat, write_json
from agentgym.engines import supervise
from agentgym.engines.lightning.environment import ENVIRONMENT
from agentgym.engines.verl.launch import RayProcess
from agentgym.errors import EngineError
from agentgym.security.log_file import LogFile

FOLDER = "LIGHTNING_FOLDER"
"""Environment variable with the folder for the files of ``hooks.py``."""
_TURN_S = 0.1
_LAST_LINES = 12


class TrainerProcess(RayProcess):
    """The process of Agent Lightning's trainer, for one run.

    It also ends when this Python process ends.
    """

    def __init__(
        self, settings: dict[str, Any], tasks: int, key: str, log: Path
    ) -> None:
        python = ENVIRONMENT.interpreter()
        log.parent.mkdir(parents=True, exist_ok=True)
        super().__init__()
        self._log = log
        self._begin = log.stat().st_size if log.exists() else 0
        self._said = ""
        request = self._folder / "request.json"
        write_json(request, {"settings": settings, "tasks": tasks})
        words = [sys.executable, supervise.__file__, str(os.getpid()), str(python)]
        words += ["-m", "agentgym.engines.lightning.train", str(request)]
        # The trainer prints its whole configuration, with the gateway's key.
        output = LogFile(log, {"gateway key": key})
        folders = {FOLDER: str(self._folder), "RAY_TMPDIR": str(self._folder / "r")}
        self._start(words, key, output, **folders)

    @property
    def failure(self) -> str:
        """Why the process ended, with the end of its log; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        if not self._said:
            self._output.wait()
            self._said = (
                f"Agent Lightning's trainer ended ({code}): {self._last_words()} "
                f"The whole log is in {self._log}."
            )
        return self._said

    def _last_words(self) -> str:
        """Return the trainer's message about bad settings, or its log's last lines."""
        with self._log.open("rb") as file:
            file.seek(self._begin)
            lines = file.read().decode(errors="replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        ours = [line for line in lines if line.startswith("agentgym: ")]
        if ours:
            return ours[-1].removeprefix("agentgym: ")
        return "\n".join(["", *lines[-_LAST_LINES:], ""]) or "it wrote nothing."

    def tell(self, name: str, value: Any) -> None:
        """Write ``value`` to the JSON file ``name``, for which the trainer waits."""
        write_json(self._folder / name, value)

    def read(self, name: str) -> Any:
        """Return the content of the trainer's file ``name``; None if it is missing."""
        path = self._folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def wait_for(self, name: str, beat: Beat) -> None:
        """Wait until the trainer has written the file ``name``.

        ``beat`` is called regularly, to show that this process is alive.

        Raises:
            EngineError: The trainer ended before.
        """
        beaten = time.monotonic()
        while not (self._folder / name).exists():
            if failure := self.failure:
                raise EngineError(failure)
            time.sleep(_TURN_S)
            if time.monotonic() > beaten + BEAT_S:
                beat(None)
                beaten = time.monotonic()
