"""Program that controls verl: reads requests and writes answers as lines of JSON.

    python -m agentgym.plugins.verl.driver

It runs in verl's environment. Output of libraries goes to standard error.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

_SHUTDOWN_S = 20


def work(make: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests until standard input ends.

    ``make`` creates the cluster from verl's settings.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _die_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cluster: Any = None
    try:
        for line in sys.stdin:
            try:
                request = json.loads(line)
            except ValueError:  # a request that was interrupted
                continue
            verb, given = request["verb"], request["given"]
            answer = {"number": request["number"]}
            try:
                if verb == "start":
                    cluster = make(given["settings"])
                    answer["found"] = cluster.state()
                else:
                    answer["found"] = getattr(cluster, verb)(**given)
            except Exception as error:  # noqa: BLE001 - sent to the client
                traceback.print_exc()
                answer["error"] = describe_error(error)
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        signal.alarm(_SHUTDOWN_S)  # a hanging shutdown ends too
        if cluster is not None:
            cluster.close()


def describe_error(error: Exception) -> str:
    """Return an error's message in one line.

    Ray's messages begin with a worker's traceback; only their last line is returned.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("\x1b[36mray::"):
        return lines[-1]
    return f"{type(error).__name__}: {' '.join(lines)}"[:2000]


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


if __name__ == "__main__":
    from agentgym.plugins.verl.cluster import Cluster

    work(Cluster)
