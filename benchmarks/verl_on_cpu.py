"""A short run with verl, Ray and a stand-in for vLLM on the CPU, for overhead.py.

    VERL_ENVIRONMENT=$PWD/verl_env uv run python benchmarks/verl_on_cpu.py runs
    uv run python benchmarks/overhead.py runs/verl

docs/gpu_training.md says how to make the environment.
"""

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> None:
    """Train; the run is the folder ``verl`` of the one that is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    given = parser.parse_args()

    from agentgym import Trainer
    from agentgym.core.files import agents_folder
    from tests.plugins.verl.running import ENVIRONMENT, ON_THE_CPU, config

    os.environ |= ON_THE_CPU
    os.environ["AGENTGYM_HOME"] = str(given.output.resolve() / "home")
    engines = agents_folder().parent / "engines"
    engines.mkdir(parents=True, exist_ok=True)
    if not (engines / "verl").exists():
        (engines / "verl").symlink_to(os.environ[ENVIRONMENT])
    each = {"tasks_per_step": 4, "group_size": 8, "tracker": "tensorboard"}
    episodes, never = 32 * given.steps, 10 * given.steps
    settings = config(given.output, **each, name="verl", framework="langchain")
    Trainer(settings.replaced(episodes=episodes, eval_every=never)).train()


if __name__ == "__main__":
    main()
