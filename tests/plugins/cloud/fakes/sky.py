"""A fake ``sky`` on the path, with clouds, prices and clusters of its own."""

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("sky_program.py")


def row(
    cloud: str,
    kind: Any,
    gpu: str,
    price: float,
    memory: Any = 22.4,
    count: float = 1,
    spot: float = float("nan"),
) -> dict[str, Any]:
    """Return a row as ``sky gpus list --output json`` prints it."""
    return {
        "cloud": cloud,
        "instance_type": kind,
        "accelerator_name": gpu,
        "accelerator_count": float(count),
        "cpu_count": 4,
        "device_memory": memory,
        "memory": 16,
        "price": price,
        "spot_price": spot,
        "region": "us-east-1",
    }


GPUS = {
    "L4": [
        row("AWS", "g6.xlarge", "L4", 0.8048),
        row("AWS", "g6.12xlarge", "L4", 4.6, count=4),
        row("GCP", "g2-standard-4", "L4", 0.7, memory=None),
        row("Azure", "not_enabled", "L4", 0.1),
        row("Hyperbolic", "no_autodown", "L4", 0.2),
    ],
    "A100-80GB": [row("AWS", "p4de", "A100-80GB", 3.2, memory=80.0)],
    "RTX6000-Ada": [row("GCP", "ada", "RTX6000-Ada", float("nan"))],
    "T4": [row("GCP", None, "T4", 0.35)],
}

SPOT = {
    "L4": [
        row("AWS", "g6.xlarge", "L4", 0.8, spot=0.2),
        row("GCP", "g2-standard-4", "L4", 0.7, spot=0.3),
        row("AWS", "odd", "L4", 0.1, spot=0.5),
        row("AWS", "gr6.xlarge", "L4", 0.9),
    ]
}
"""GPUs of which some have a spot price."""


class FakeSky:
    """SkyPilot without clouds: its state is a file that the command changes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        program = folder / "bin" / "sky"
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} -IS {PROGRAM} {folder} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        state = {
            "clouds": {"AWS": ["compute", "storage"], "GCP": ["compute"]}
            | {"Hyperbolic": ["compute"], "R2": ["storage"]},
            "gpus": GPUS,
            "clusters": {},
            "launches": [],
            "downs": 0,
            "on_launch": "up",
            "launch_s": 0.0,
            "full": [],
            "offline": False,
            "garbage": False,
            "down_fails": False,
            "init_kind": None,
            "ssh_config": "",
            "ssh_port": 0,
        }
        (folder / "state.json").write_text(json.dumps(state))

    def __getitem__(self, name: str) -> Any:
        return json.loads((self.folder / "state.json").read_text())[name]

    def take_away(self) -> None:
        """End every cluster, as a cloud does that wants its spot machines back."""
        self.change(clusters={})

    def change(self, **changes: Any) -> None:
        """Change what there is; a command that runs sees it before or after."""
        path = self.folder / "state.json"
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
