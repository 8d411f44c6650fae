"""Updates of verl's own actor in this process, without Ray and without servers.

Run by an interpreter that has verl: settings and batches come in as JSON, what each
update measured goes out, and the model of after the last one is written to a folder.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

ALONE = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def imitated(updates: Any, worker: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Imitate examples, and learn again, after AdamW was reset each time."""
    rows, moments = given["examples"], worker.actor.engine.optimizer.state
    worker.forget_moments()
    found = {
        "before": updates.measure(rows),
        "step": updates.imitate(rows, rate=1e-4),
        "after": updates.measure(rows),
        "moments": len(moments),
    }
    worker.forget_moments()
    found["kept"] = len(moments)
    updates.learn(**given["batches"][0])
    return found | {"again": len(moments)}


def main(asked: Path, folder: Path) -> None:
    os.environ |= ALONE
    import torch
    from omegaconf import OmegaConf

    from agentgym.plugins.verl.compose import compose
    from agentgym.plugins.verl.learner import VerlLearner
    from agentgym.plugins.verl.updates import Updates

    given = json.loads(asked.read_text())
    config = compose(given["settings"])
    OmegaConf.resolve(config)
    critic = config.critic if config.critic.enable else None
    worker = VerlLearner(config.actor_rollout_ref, role="actor", critic=critic)
    torch.manual_seed(0)  # of the value model's new head
    worker.init_model()
    updates = Updates(worker, config, ranks=1)
    done = [updates.learn(**batch) for batch in given["batches"]]
    worker.export(str(folder), "float32")
    if given["examples"]:
        done.append(imitated(updates, worker, given))
    (folder / "done.json").write_text(json.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
