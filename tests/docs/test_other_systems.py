"""The development container, the action for GitHub, .env.example, the extra dev."""

import ast
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentgym.models.reference import PROVIDERS

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
KEY = re.compile(r"[A-Z][A-Z0-9_]*_(API_KEY|TOKEN|GATEWAY_KEY)")
NOT_FOR_USERS = {
    "ANTHROPIC_AUTH_TOKEN": "a program under training is given it",
    "HUGGING_FACE_HUB_TOKEN": "the older name of HF_TOKEN",
    "VLLM_API_KEY": "vLLM's server is given it",
}


def keys_of_the_code() -> set[str]:
    found = {f"{provider.upper()}_API_KEY" for provider in PROVIDERS}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and KEY.fullmatch(text):
                found.add(text)
    return found


@pytest.mark.slow
def test_the_example_of_env_has_every_key_that_is_read() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    listed = {line[2:].partition("=")[0] for line in lines if "=" in line}
    assert keys_of_the_code() - listed == NOT_FOR_USERS.keys()


def test_the_development_container_is_made_of_files_that_are_there() -> None:
    folder = ROOT / ".devcontainer"
    found = json.loads((folder / "devcontainer.json").read_text())
    dockerfile = (folder / found["build"]["dockerfile"]).read_text()
    assert f"USER {found['remoteUser']}" in dockerfile
    environment = re.search(r"UV_PROJECT_ENVIRONMENT=(\S+)", dockerfile)
    assert environment is not None
    settings = found["customizations"]["vscode"]["settings"]
    assert settings["python.defaultInterpreterPath"].startswith(environment[1])
    images = re.findall(r"^(?:FROM |COPY --from=)(\S+)", dockerfile, re.MULTILINE)
    deployed = (ROOT / "deploy" / "Dockerfile").read_text()
    assert images
    assert all(image in deployed for image in images)


def test_pip_has_the_packages_that_uv_installs_for_work_on_the_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["dependency-groups"]["dev"] == ["agentgym-sdk[dev]"]
    names = " ".join(project["project"]["optional-dependencies"]["dev"])
    assert all(name in names for name in ("pytest>", "mypy>", "ruff>"))


def test_the_example_gives_the_action_the_inputs_that_it_has() -> None:
    path = ROOT / "examples" / "github_action" / "agent.yml"
    [job] = yaml.safe_load(path.read_text())["jobs"].values()
    [step] = [each for each in job["steps"] if "/agentgym@" in each.get("uses", "")]
    required = {name for name, of in ACTION["inputs"].items() if of.get("required")}
    assert required <= step["with"].keys() <= ACTION["inputs"].keys()


def measured(folder: Path, agentgym: str, **inputs: str) -> tuple[int, str, str]:
    """Run the action's second step; return its code, its summary and its output."""
    given = {name: of.get("default", "") for name, of in ACTION["inputs"].items()}
    given |= {name.replace("_", "-"): value for name, value in inputs.items()}
    [step] = [each for each in ACTION["runs"]["steps"] if each.get("id") == "test"]
    variables: dict[str, Any] = {
        name: given[re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", value)[1]]
        for name, value in step["env"].items()
    }
    program = folder / "bin" / "agentgym"
    program.parent.mkdir()
    program.write_text(f"#!/bin/bash\n{agentgym}\n")
    program.chmod(0o755)
    summary, output = folder / "summary", folder / "output"
    variables |= {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    ended = subprocess.run(command, env=variables, cwd=folder, timeout=60)
    said = summary.read_text() if summary.exists() else ""
    return ended.returncode, said, output.read_text()


def test_the_action_fails_as_the_command_does_and_shows_its_report(
    tmp_path: Path,
) -> None:
    fake = 'printf "%s\\n" "$@" > words; echo "# Report" > "$4"; exit 1'
    options = "--replay --json 'a b'"
    contract = "my contract.yaml"
    code, summary, output = measured(tmp_path, fake, contract=contract, options=options)
    files = {
        kind: str(tmp_path / f"agentgym-test.{end}")
        for kind, end in (("markdown", "md"), ("html", "html"), ("junit", "xml"))
    }
    written = [word for kind, path in files.items() for word in (f"--{kind}", path)]
    words = (tmp_path / "words").read_text().splitlines()
    assert words == ["test", contract, *written, "--replay", "--json", "a b"]
    assert (code, summary) == (1, "# Report\n")
    assert output == "".join(f"{kind}={path}\n" for kind, path in files.items())


@pytest.mark.slow
def test_the_action_tests_the_example(tmp_path: Path) -> None:
    real = 'exec python -m agentgym "$@"'
    example = (ROOT / "examples" / "github_action" / "contract.yaml").read_text()
    short = yaml.safe_load(example) | {"count": 8, "limits": {"pass_1": 0.01}}
    (tmp_path / "contract.yaml").write_text(json.dumps(short))
    code, summary, _ = measured(tmp_path, real, options="--record")
    assert code == 0, summary
    assert "pass_1 >= 0.01" in summary
    (tmp_path / "again").mkdir()
    for name in ("contract.yaml", "contract.recording.jsonl"):
        (tmp_path / name).rename(tmp_path / "again" / name)
    code, summary, _ = measured(tmp_path / "again", real, options="--replay")
    assert code == 0, summary
    assert "replayed, without a model" in summary
