"""verl's driver as it is, with a cluster that does what it is told."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from agentgym.plugins.verl import driver


class ScriptedCluster:
    """``settings["script"]`` says what an update does."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.script = settings.get("script", "")
        self.model = settings["actor_rollout_ref.model.path"]
        self.version = 0
        if self.script == "no start":
            raise ValueError("there is no such model")
        if self.script == "children":  # one of them in a session of its own
            os.system("sleep 600 & setsid sleep 600 &")

    def state(self) -> dict[str, Any]:
        servers = ["http://127.0.0.1:9/v1"]
        return {"servers": servers, "model": self.model, "version": self.version}

    def update(
        self, rows: list[Any], version: int, rate: float, **_: Any
    ) -> dict[str, float]:
        if self.script == "dies":
            sys.stderr.write("CUDA error: an illegal memory access\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if self.script == "slow":
            time.sleep(60.0)
        if self.script == "waits":
            time.sleep(1.0)
        if self.script == "fails":
            raise RuntimeError("out of memory")
        self.version = version
        gap = 0.5 if self.script == "other weights" else 0.001
        norm = float("nan") if self.script == "not finite" else 1.0
        return {"loss": float(len(rows)), "grad_norm": norm, "gap": gap, "kl": rate}

    def imitate(self, rows: list[Any], rate: float) -> dict[str, float]:
        norm = float("nan") if self.script == "not finite" else 1.0
        self.imitated = (len(rows), rate)
        return {"loss": 0.5, "grad_norm": norm}

    def measure(self, rows: list[Any]) -> dict[str, float]:
        assert self.imitated == (1, 1e-3 / 4), self.imitated
        return {"loss": 0.25}

    def refresh(self, version: int) -> None:
        assert version == self.version == 0
        del self.imitated  # fails if it is asked for a second time

    def save(self, folder: str) -> None:
        if self.script not in ("elsewhere", "waits"):
            Path(folder, "rank_0.pt").write_text(json.dumps(self.version))

    def load(self, folder: str, version: int) -> None:
        assert json.loads(Path(folder, "rank_0.pt").read_text()) == version
        self.version = version

    def export(self, folder: str) -> None:
        Path(folder).mkdir()
        Path(folder, "model.safetensors").touch()

    def close(self) -> None: ...


if __name__ == "__main__":
    driver.work(ScriptedCluster)
