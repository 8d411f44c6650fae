"""What a user of verl does with our trajectories; runs in an environment with verl.

Reads trajectories, a line each, and prints what verl's own code makes of them.
"""

import json
import sys
from pathlib import Path

from verl import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import FSDPActorConfig

from agentgym.core.trajectory import Trajectory
from agentgym.plugins.verl.dataproto import to_dataproto


def main(file: str) -> None:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    made = to_dataproto(
        [Trajectory.model_validate_json(line) for line in lines], "nano"
    )
    whole = DataProto.concat(made.chunk(2))  # as its data-parallel ranks get it
    batch = whole.batch
    config = FSDPActorConfig(
        strategy="fsdp2",
        ppo_mini_batch_size=len(made),
        ppo_micro_batch_size_per_gpu=1,
        rollout_n=2,
    )
    loss, _ = get_policy_loss_fn("vanilla")(
        old_log_prob=batch["old_log_probs"],
        log_prob=batch["old_log_probs"],
        advantages=batch["advantages"],
        response_mask=batch["response_mask"],
        loss_agg_mode="token-mean",
        config=config,
    )
    mask = batch["response_mask"].bool()
    told = {
        "rows": len(made),
        "loss": loss.item(),
        "advantages": batch["advantages"][mask].tolist(),
        "logprobs": batch["old_log_probs"][mask].tolist(),
        "tokens": [
            row[row_mask].tolist()
            for row, row_mask in zip(batch["responses"], mask, strict=True)
        ],
        "shapes": {name: list(batch[name].shape) for name in batch.keys()},  # noqa: SIM118
        "meta": whole.meta_info,
    }
    sys.stdout.write(json.dumps(told) + "\n")


main(sys.argv[1])
