"""The manifests in deploy/, as kubectl would read them."""

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
JOB = KUBERNETES / "job.yaml"

Manifest = dict[str, Any]


def kustomization() -> Manifest:
    found = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert isinstance(found, dict)
    return found


def manifests() -> list[Manifest]:
    """Return all that the kustomization names."""
    files = [KUBERNETES / name for name in kustomization()["resources"]]
    return [doc for file in files for doc in yaml.safe_load_all(file.read_text())]


def find(kind: str, name: str) -> Manifest:
    [found] = [
        each
        for each in manifests()
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


def pod(manifest: Manifest) -> Manifest:
    """Return the pod that a Deployment or a Job makes."""
    found = manifest["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found
