"""Plays Agent Lightning's trainer: files of our hooks, checkpoints, and faults.

    fake_trainer.py FAULT -m agentgym.plugins.lightning.train REQUEST

FAULT is ``none``, ``start`` (ends before it is ready), ``update`` (ends in an update)
or ``skip`` (makes no update).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def await_file(path: Path) -> Any:
    while not path.exists():
        time.sleep(0.01)
    return json.loads(path.read_text())


def write(path: Path, value: Any) -> None:
    path.with_suffix(".new").write_text(json.dumps(value))
    path.with_suffix(".new").rename(path)


def main() -> None:
    fault, settings = sys.argv[1], json.loads(Path(sys.argv[4]).read_text())["settings"]
    folder = Path(os.environ["LIGHTNING_FOLDER"])
    saved = Path(settings["trainer.default_local_dir"])
    resumed = settings.get("trainer.resume_from_path", "global_step_0")
    step = int(resumed.rpartition("_")[2])
    sys.stdout.write(f"resumed from step {step}\n")
    sys.stdout.flush()
    if fault == "start":
        sys.exit("CUDA error: out of memory")
    for turn in range(1, 100):
        write(folder / f"ready-{turn}", {})
        names = await_file(folder / f"go-{turn}")
        if fault == "update":
            sys.exit("RuntimeError: NCCL lost a rank")
        if fault == "skip":
            continue
        step += 1
        model = saved / f"global_step_{step}" / "actor" / "huggingface"
        model.mkdir(parents=True)
        (model / "model.safetensors").write_text(f"weights of step {step}")
        rows = [
            {
                "rollout": name,
                "prompt": 3,
                "response": 2,
                "reward": 0.5,
                "advantage": 1.0,
            }
            for name in names[:-1]
        ]
        measures = {"loss": 0.25, "grad_norm": 2.0}
        write(folder / f"update-{turn}", {"rows": rows, "measures": measures})


if __name__ == "__main__":
    main()
