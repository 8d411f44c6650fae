"""Updates of verl's own actor in this process, without Ray and without servers.

Run by an interpreter that has verl: settings and batches come in as JSON, what each
update measured goes out, and the model of after the last one is written to a folder.
"""

import json
import os
import sys
from pathlib import Path

ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def main(asked: Path, folder: Path) -> None:
    os.environ |= ALONE
    from omegaconf import OmegaConf

    from agentgym.engines.verl.compose import compose
    from agentgym.engines.verl.learner import VerlLearner
    from agentgym.engines.verl.updates import Updates

    given = json.loads(asked.read_text())
    config = compose(given["settings"])
    OmegaConf.resolve(config)
    critic = config.critic if config.critic.enable else None
    worker = VerlLearner(config.actor_rollout_ref, role="actor", critic=critic)
    worker.init_model()
    updates = Updates(worker, config, ranks=1)
    done = [updates.learn(**batch) for batch in given["batches"]]
    worker.export(str(folder), "float32")
    (folder / "done.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
