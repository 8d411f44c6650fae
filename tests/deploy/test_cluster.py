"""Agent Lightning's own controller runs our agents by our manifests."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from agentgym.rollout.store.records import RolloutState
from tests.deploy.cluster import running
from tests.deploy.manifests import JOB, find, kustomization, pod
from tests.rollout.foreign import KEY, queue, service, tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

FAST = "k8s_runner.poll_interval=1"


async def test_a_job_runs_each_rollout(tmp_path: Path) -> None:
    namespace = kustomization()["namespace"]
    kubeconfig = tmp_path / "kubeconfig"
    template = JOB.read_text()
    broken = template.replace("--timeout=300", "--agent=no_such:agent")
    assert broken != template
    [container] = pod(find("Deployment", "controller"))["containers"]
    words = [w for w in container["args"] if "hydra" not in w and "url" not in w]
    program = Path(sys.executable).with_name(container["command"][0])
    with service(tmp_path / "data", workers=0) as (served, api):
        async with running(namespace, kubeconfig) as cluster:
            names = queue(api, tasks(2), config={"k8s": {"job_template": template}})
            body = {"rollout_id": "bad", "input": {"task": "?"}}
            wrong = {**body, "config": {"k8s": {"job_template": broken}}}
            api.post("/api/rollouts", json=[wrong]).raise_for_status()
            controller = await asyncio.create_subprocess_exec(
                *(program, *words, f"agl_server.url={served.gateway.url}", FAST),
                *(f"hydra.run.dir={tmp_path}", "hydra.output_subdir=null"),
                env={
                    **os.environ,
                    "KUBECONFIG": str(kubeconfig),
                    "AGL_KEY": KEY,
                    "NAMESPACE": namespace,
                },
            )
            try:
                wanted = {*names, "bad"}
                wait = served.store.wait_terminal
                assert await asyncio.to_thread(wait, wanted, 120) == wanted
            finally:
                controller.kill()  # it does not end while it watches
                await controller.wait()
            for name in names:
                assert served.store.get(name).status.state is RolloutState.SUCCEEDED
                reward = served.store.events(name)[-1]
                assert reward.event_type == "reward"
                assert len(served.store.model_calls(name)) == 2
                assert f"Rollout {name}: reward" in cluster.told[f"agl-rollout-{name}"]
            status = served.store.get("bad").status
            assert status.state is RolloutState.FAILED
            assert (status.error_message or "").startswith("Job failed")
            assert "no_such" in cluster.told["agl-rollout-bad"]
