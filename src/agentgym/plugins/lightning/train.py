"""Program that runs Agent Lightning's trainer, in Agent Lightning's environment.

    python -m agentgym.plugins.lightning.train REQUEST

REQUEST is a JSON file with ``settings`` (the trainer's settings by dotted key) and
``tasks`` (the number of tasks per step).
"""

import json
import os
import sys
from pathlib import Path

from agentgym.plugins.verl.compose import compose

KEY_VARIABLE = "AGENTGYM_ENGINE_KEY"


def main() -> None:
    """Compose the trainer's configuration, and train until the process is killed."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    settings = asked["settings"]
    settings["agentlightning.agl_key"] = os.environ.pop(KEY_VARIABLE)
    try:
        config = compose(settings, of="agentlightning")
    except ValueError as error:
        sys.exit(f"agentgym: {error}")
    from agentlightning.verl.entrypoint import run_ppo

    # Only the number of rows counts: hooks.py replaces their rollouts by AgentGym's.
    rows = [{"task": str(number)} for number in range(asked["tasks"])]
    run_ppo(config, rows, rows[:1])


if __name__ == "__main__":
    main()
