"""Agent Lightning's controller completes rollouts of our agents."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentgym.rollout.record import to_trajectory
from agentgym.rollout.store.records import RolloutState
from tests.rollout.foreign import KEY, queue, service, tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

DOCS = Path(__file__).parents[3] / "docs" / "agent_lightning.md"


def local_settings() -> dict[str, Any]:
    """Return what the documentation gives the controller."""
    match = re.search(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert match is not None
    found = yaml.safe_load(match[1])["agentlightning"]["local"]
    assert isinstance(found, dict)
    return found


def test_their_controller_completes_rollouts_of_our_agents(tmp_path: Path) -> None:
    local = local_settings()
    with service(tmp_path / "data", workers=0) as (served, api):
        names = queue(api, tasks(4), config={"local": local, "timeout_seconds": 120})
        body = [{"rollout_id": "bad", "input": {}, "config": {"local": local}}]
        api.post("/api/rollouts", json=body).raise_for_status()
        controller = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("agl-controller")),
                "runner_type=local",
                f"agl_server.url={served.gateway.url}",
                "agl_server.key=${oc.env:AGL_KEY}",
                "local_runner.poll_interval=0.5",
                "local_runner.maximum_size=2",
                f"hydra.run.dir={tmp_path}",
                "hydra.output_subdir=null",
            ],
            env={**os.environ, "AGL_KEY": KEY},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            wanted = {*names, "bad"}
            assert served.store.wait_terminal(wanted, 150) == wanted
        finally:
            controller.terminate()
            said, _ = controller.communicate(timeout=60)
        store = served.store
        for name in names:
            assert store.get(name).status.state is RolloutState.SUCCEEDED, said
            made = to_trajectory(
                store.get(name),
                {a: store.events(name, a) for a in store.attempts(name)},
            )
            assert made.reward is not None
            assert [call.name for call in made.get_tool_calls()] == ["list_files"]
            assert len(made.model_calls) == 2
        assert store.get("bad").status.state is RolloutState.FAILED
        [event] = store.events("bad")
        assert event.data["reason"]["kind"] == "no task"
        assert (
            "409 Conflict" not in said
        )  # nobody but the controller moves a rollout's state
