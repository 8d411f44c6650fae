"""A process of its own that plays a scenario and writes digests of what came out.

Started as ``python -m agentgym.scenarios.check.fingerprint REFERENCE SEED COUNT``.
"""

import json
import sys

from agentgym.scenarios.check.examination import Examination
from agentgym.scenarios.check.repeats import fingerprint
from agentgym.scenarios.registry import get_scenario


def main(reference: str, seed: str, count: str) -> None:
    """Write the digests as JSON to standard output."""
    scenario = get_scenario(reference)
    try:
        found = fingerprint(Examination(reference, scenario, int(count), int(seed)))
    finally:
        scenario.close()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
