"""The questions' end of a machine that dies the instant it may.

As soon as the client has said that it has everything, and before it is answered: its
provider has it no more, and its SSH server and all connections are gone.
"""

import os
import signal
import sys
import urllib.request
from pathlib import Path

import psutil

from agentgym.plugins.cloud.run_server import RunServer, serve


class Dying(RunServer):
    """Ends its machine in the place of an answer to ``finish``."""

    def finish(self) -> None:
        asked = urllib.request.Request(
            os.environ["FAKE_POD"],
            method="DELETE",
            headers={"Authorization": f"Bearer {os.environ['FAKE_KEY']}"},
        )
        with urllib.request.urlopen(asked):
            pass
        servers = [p for p in psutil.Process().parents() if "sshd" in p.name()]
        for process in servers:
            process.send_signal(signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    os.umask(0o077)
    serve(Dying(Path(sys.argv[1]).expanduser()), sys.stdin.buffer, sys.stdout.buffer)
