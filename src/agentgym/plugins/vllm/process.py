"""SupervisedProcess: start and end a process of another virtual environment."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agentgym.plugins.vllm import supervise
from agentgym.security.files import LogFile

_ENDS_S = 45.0


class SupervisedProcess:
    """A process that ends when this process ends, with all that it started.

    Its output is appended to ``log``.
    """

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._begin = log.stat().st_size if log.exists() else 0

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path | None = None,
        pipes: int | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Start a command in ``folder``, which is removed at its end.

        ``pipes`` are its input and output, as in ``subprocess``. With None, its input
        is empty, and its output goes to the log, without ``secrets``.
        """
        guard = [sys.executable, "-P", supervise.__file__, str(os.getpid())]
        with LogFile(self.log, secrets) as self._output:
            self._process = subprocess.Popen(
                [*guard, str(folder or ""), *command],
                env=environment,
                cwd=folder,
                stdin=pipes or subprocess.DEVNULL,
                stdout=pipes or self._output.fileno(),
                stderr=self._output.fileno(),
                start_new_session=True,  # Ctrl-C is for us; we then end it
            )

    def _log_text(self) -> str:
        """Return the process's output; if it has ended, wait for the last of it."""
        self._output.wait()
        with self.log.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._begin)
            return file.read()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and all processes that it started."""
        if self._process.poll() is None:
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_S)
        self._kill_group()
        self._process.wait()
        self._output.wait()
        # Earlier, an unread request could block this.
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):
                pipe.close()
