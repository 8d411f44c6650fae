"""Program that controls verl: reads requests and writes answers as lines of JSON.

    python -m agentgym.plugins.verl.driver [FOLDER]

It supervises a process that does the work, and ends with the process that started it,
with all that verl has started; then it removes FOLDER. Output of libraries goes to
standard error.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from shutil import rmtree
from typing import Any

from agentgym.plugins.verl.protocol import PROTOCOL
from agentgym.plugins.vllm.supervise import run

WORK = "work"
_VERSIONS = "it belongs to another agentgym: install the same version on both sides"
_SHUTDOWN_S = 20


def main(make: Callable[[dict[str, Any]], Any], *words: str) -> None:
    """Work, or supervise the process that works.

    ``make`` creates the cluster; the arguments ``words`` start this program again.
    """
    if sys.argv[1:] == [WORK]:
        work(make)
        return
    code = run(os.getppid(), [sys.executable, *words, WORK], None)
    for folder in sys.argv[1:]:
        rmtree(folder, ignore_errors=True)
    sys.exit(code)


def work(make: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests until standard input ends."""
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
            except ValueError:  # a request that was interrupted, or no line
                continue
            verb, given = request["verb"], request["given"]
            answer = {"number": request["number"]}
            try:
                if verb == "start":
                    if given["protocol"] != PROTOCOL:
                        raise RuntimeError(_VERSIONS)
                    cluster = make(given["settings"])
                    found = cluster.state()
                else:
                    found = getattr(cluster, verb)(**given)
                answer["found"] = found
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
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


def _cluster(settings: dict[str, Any]) -> Any:
    from agentgym.plugins.verl.cluster import Cluster

    return Cluster(settings)


if __name__ == "__main__":
    main(_cluster, "-m", "agentgym.plugins.verl.driver")
