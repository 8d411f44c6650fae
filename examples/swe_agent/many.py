"""mini-swe-agent, started once for many tasks: one a line of standard input.

Run it with the Python that mini-swe-agent is installed in.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

answers, sys.stdout = sys.stdout, sys.stderr  # what is printed is no answer
os.environ |= {"MSWEA_SILENT_STARTUP": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "true"}
os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"

import yaml  # noqa: E402
from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402

SETTINGS = yaml.safe_load(Path(__file__).with_name("mini.yaml").read_text())


def attempt(task: dict[str, Any]) -> str:
    """Attempt a task with an agent of its own; return how it ended."""
    os.environ.update(task["variables"])
    model = LitellmModel(
        model_name=f"openai/{os.environ['OPENAI_MODEL']}", **SETTINGS["model"]
    )
    environment = LocalEnvironment(cwd=task["folder"], **SETTINGS["environment"])
    options = {k: v for k, v in SETTINGS["agent"].items() if k != "agent_class"}
    ended = DefaultAgent(model, environment, **options).run(task["instruction"])
    return str(ended.get("exit_status"))


def main() -> None:
    """Answer each line with a line."""
    for line in sys.stdin:
        try:
            said = {"answer": attempt(json.loads(line))}
        except Exception as error:  # noqa: BLE001 - the next task has its own chance
            said = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(said) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
