"""A client with a lease, or the command line, in a process of its own.

``client.py URL lease FOLDER`` rents of RunPod's fake at URL, writes ``up`` and waits;
``client.py URL agentgym WORD…`` is the command line.
"""

import sys
import time
from pathlib import Path

from agentgym.cli.main import main
from agentgym.plugins.cloud.lease import Lease, Waits
from agentgym.plugins.cloud.providers.api import ApiProvider
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.rented import Rented

QUICK = Waits(look_s=0.02, looks=8, up_s=5.0, end_s=20.0)


def run() -> int:
    url, what, *words = sys.argv[1:]
    RunPod.url, ApiProvider.backoff_s, Rented.waits = url, 0.005, QUICK
    if what == "agentgym":
        sys.argv = ["agentgym", *words]
        return main()
    provider = RunPod()
    offers = [each for each in provider.offers() if each.gpu == "L4"]

    def tell(told: str) -> None:
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()

    with Lease(provider, offers, Path(words[0]), report=tell, waits=QUICK) as lease:
        tell(f"up at {lease.address}")
        time.sleep(60)
    return 0


if __name__ == "__main__":
    sys.exit(run())
