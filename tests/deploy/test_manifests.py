"""deploy/kubernetes: valid, and of one piece."""

import json
import shutil
import subprocess
import warnings
from typing import Any

import kubernetes_validate
import pytest
import yaml
from agentlightning.controller.k8s_reconciler import build_job_spec
from agentlightning.schemas import Rollout, RolloutConfig
from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from typer.main import get_command

from agentgym.cli.app import build
from agentgym.core.settings import PREFIX
from agentgym.plugins.lightning.job import Assignment
from tests.deploy.manifests import (
    DEPLOY,
    JOB,
    KUBERNETES,
    Manifest,
    find,
    kustomization,
    manifests,
    pod,
)

GATEWAY = "http://gateway:8080"


def controller_config(monkeypatch: pytest.MonkeyPatch) -> DictConfig:
    """Return what Agent Lightning's controller makes of its arguments."""
    monkeypatch.setenv("AGL_KEY", "a=key, with: odd 'letters'")
    monkeypatch.setenv("NAMESPACE", kustomization()["namespace"])
    [container] = pod(find("Deployment", "controller"))["containers"]
    words = [word for word in container["args"] if not word.startswith("hydra.")]
    with initialize_config_module("agentlightning.config", version_base=None):
        return compose("controller", overrides=words)


def made_job(config: DictConfig, **given: Any) -> Manifest:
    """Return the Job that Agent Lightning's controller makes of the template."""
    template = {"job_template": JOB.read_text()}
    rollout = Rollout.model_validate(
        {
            "rollout_id": "4f2a",
            "input": {"task": '{"id": "x: \\"{{ quoted }}\\""}'},
            "config": RolloutConfig.model_validate({"k8s": template, **given}),
            "status": {"created_at": 0, "updated_at": 0},
        }
    )
    return build_job_spec(rollout, config)


def validate(manifest: Manifest, version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
def test_everything_is_what_kubernetes_takes(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [*manifests(), made_job(controller_config(monkeypatch))]
    assert {each["kind"] for each in every} >= {"Job", "Deployment", "NetworkPolicy"}
    for each in every:
        validate(each, version)


def test_what_kubernetes_does_not_take_is_found() -> None:
    wrong = find("Deployment", "gateway")
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong, "1.31")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_renders_it() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES)],
        capture_output=True,
        text=True,
        check=True,
    )
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) == len(manifests()) + 1  # the ConfigMap
    for each in rendered:
        validate(each, "1.31")
        if each["kind"] != "Namespace":
            assert each["metadata"]["namespace"] == kustomization()["namespace"]
    images = {c["image"] for c in containers(rendered)}
    assert images == {container["image"] for container in pod(template())["containers"]}


def containers(found: list[Manifest]) -> list[Manifest]:
    deployments = [each for each in found if each["kind"] == "Deployment"]
    return [c for each in deployments for c in pod(each)["containers"]]


def template() -> Manifest:
    loaded = yaml.safe_load(JOB.read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("name", ["gateway", "controller", "job"])
def test_no_pod_may_more_than_it_needs(name: str) -> None:
    made = template() if name == "job" else find("Deployment", name)
    its = pod(made)
    assert its["securityContext"]["runAsNonRoot"] is True
    assert its["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    # Variables of services, such as AGENTGYM_PORT, would be refused as settings.
    assert its["enableServiceLinks"] is False
    has_token = its.get("automountServiceAccountToken", True)
    assert has_token is (name == "controller")
    for container in its["containers"]:
        limits = container["resources"]
        assert limits["limits"].keys() >= {"cpu", "memory"} <= limits["requests"].keys()
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        places = {mount["name"] for mount in container["volumeMounts"]}
        assert places == {volume["name"] for volume in its["volumes"]}
        home = {"name": "HOME", "value": "/tmp"}
        assert home in container["env"]


def test_the_controller_finds_the_gateway_and_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = controller_config(monkeypatch)
    assert config.runner_type == "k8s"
    assert config.agl_server.key == "a=key, with: odd 'letters'"
    assert config.k8s_runner.namespace == kustomization()["namespace"]
    service = find("Service", "gateway")
    [port] = service["spec"]["ports"]
    address = f"http://{service['metadata']['name']}:{port['port']}"
    assert config.agl_server.url == address == GATEWAY
    gateway = find("Deployment", "gateway")
    labels = gateway["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [container] = pod(gateway)["containers"]
    [listens] = container["ports"]
    assert (listens["name"], listens["containerPort"]) == (port["targetPort"], 8080)
    assert f"--port={listens['containerPort']}" in container["args"]
    secrets = {
        (ref["name"], ref["key"])
        for deployment in ("gateway", "controller")
        for container in pod(find("Deployment", deployment))["containers"]
        for variable in container["env"]
        if (ref := variable.get("valueFrom", {}).get("secretKeyRef"))
    }
    assert secrets == {("gateway-key", "key")}
    told = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()
    assert "create secret generic gateway-key --from-literal=key=" in told
    generated = {
        (made["name"], literal.partition("=")[0])
        for made in kustomization()["configMapGenerator"]
        for literal in made["literals"]
    }
    refs = [v["valueFrom"]["configMapKeyRef"] for v in container_env("gateway")]
    assert {(ref["name"], ref["key"]) for ref in refs} == generated


def container_env(deployment: str) -> list[Manifest]:
    [container] = pod(find("Deployment", deployment))["containers"]
    return [v for v in container["env"] if "configMapKeyRef" in v.get("valueFrom", {})]


def test_the_job_is_told_its_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    job = made_job(controller_config(monkeypatch), timeout_seconds=77)
    assert job["metadata"]["name"] == "agl-rollout-4f2a"
    assert job["metadata"]["namespace"] == "agentgym"
    assert job["spec"]["activeDeadlineSeconds"] == 77
    [container] = pod(job)["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert Assignment.read(variables) == Assignment(
        GATEWAY, "4f2a", "0", "a=key, with: odd 'letters'"
    )
    assert not [name for name in variables if name.startswith(PREFIX)]


@pytest.mark.parametrize("name", ["gateway", "job"])
def test_the_commands_are_ours(name: str) -> None:
    made = template() if name == "job" else find("Deployment", name)
    [container] = pod(made)["containers"]
    command, *words = container["args"]
    group: Any = get_command(build())
    found = group.get_command(None, command)
    context = found.make_context(command, list(words))
    given = {k for k, v in context.params.items() if v is not None and v is not False}
    assert given >= ({"scenario", "framework"} if name == "job" else {"model_name"})


def test_policies_let_pass_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy's pods exist, and agents and the controller reach the gateway."""
    key = "app.kubernetes.io/component"
    job = made_job(controller_config(monkeypatch))
    made = [find("Deployment", "gateway"), find("Deployment", "controller"), job]
    there = {each["spec"]["template"]["metadata"]["labels"][key] for each in made}
    policies = [each for each in manifests() if each["kind"] == "NetworkPolicy"]
    assert {p["spec"]["podSelector"]["matchLabels"][key] for p in policies} == there
    gateway = find("NetworkPolicy", "gateway")["spec"]["ingress"][0]
    [port] = gateway["ports"]
    assert port["port"] == 8080
    [expression] = gateway["from"][0]["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == there - {"gateway"}
    agent = find("NetworkPolicy", "agent")["spec"]
    assert set(agent["policyTypes"]) == {"Ingress", "Egress"}
    assert "ingress" not in agent
    assert json.dumps(agent["egress"]).count('"ports"') == len(agent["egress"])
