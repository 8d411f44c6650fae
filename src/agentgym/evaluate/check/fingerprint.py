"""A process of its own that plays a scenario and writes digests of what came out.

Started as ``python -m agentgym.evaluate.check.fingerprint REFERENCE SEED COUNT``.
"""

import json
import os
import sys
from contextlib import redirect_stdout

from agentgym.evaluate.check.examination import Examination
from agentgym.evaluate.check.repeats import fingerprint
from agentgym.scenarios.registry import get_scenario


def main(reference: str, seed: str, count: str) -> None:
    """Write the digests as JSON to standard output, and nothing else.

    What the scenario itself prints there goes to standard error.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    with redirect_stdout(sys.stderr):
        scenario = get_scenario(reference)
        try:
            found = fingerprint(Examination(reference, scenario, int(count), int(seed)))
        finally:
            scenario.close()
    with open(stdout, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
