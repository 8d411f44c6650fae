"""What a fresh process, with hashes of its own, says of a scenario."""

import json
import os
import sys
from contextlib import redirect_stdout

from agentgym.evaluate.check.examination import Examination
from agentgym.evaluate.check.repeats import fingerprint
from agentgym.scenarios.registry import get_scenario


def main(asked: str) -> None:
    """Write digests, or why there are none, as JSON to standard output.

    What the scenario itself prints there goes to standard error.

    Args:
        asked: Reference of the scenario, seed and number of tasks, as a JSON list.
    """
    reference, seed, count = json.loads(asked)
    stdout = os.dup(1)
    os.dup2(2, 1)
    with redirect_stdout(sys.stderr), os.fdopen(stdout, "w") as file:
        try:
            scenario = get_scenario(reference)
            try:
                found = fingerprint(Examination(reference, scenario, count, seed))
            finally:
                scenario.close()
            json.dump(found, file)
        except Exception as error:  # noqa: BLE001 - the scenario's own code
            json.dump({"error": f"{type(error).__name__}: {error}"}, file)
