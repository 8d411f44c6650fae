"""README and docs: snippets run, options exist."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command, agentgym

__all__ = ["agentgym"]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
SNIPPET = re.compile(r"(<!-- needs training -->\n)?```python\n(.*?)```", re.DOTALL)
GROUPS = ("scenarios", "tasks", "runs", "agents", "gpu", "engine")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def snippets(*, trained: bool) -> list[object]:
    """Return the Python snippets that do or do not need a trained agent."""
    return [
        pytest.param(match[2], id=f"{name}-{number}")
        for name, page in zip(NAMES, PAGES, strict=True)
        for number, match in enumerate(SNIPPET.finditer(page.read_text()))
        if bool(match[1]) is trained
    ]


def commands() -> dict[str, set[str]]:
    """Return each agentgym command that the pages show, with its options there."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for line in re.findall(r"^    (?:.* )?agentgym (.+)$", page.read_text(), re.M):
            words = line.split("#")[0].split()
            command = " ".join(words[: 2 if words[0] in GROUPS else 1])
            options = found.setdefault(command, set())
            options |= {word for word in words if word.startswith("--")}
    return found


@pytest.mark.parametrize("code", snippets(trained=False))
def test_snippet_runs(code: str) -> None:
    exec(compile(code, "snippet", "exec"), {"__name__": "snippet"})


@pytest.mark.parametrize("code", snippets(trained=True))
def test_snippet_that_needs_training_compiles(code: str) -> None:
    compile(code, "snippet", "exec")


@pytest.mark.slow
def test_scenario_of_the_docs_passes_the_tripwires(tmp_path: Path) -> None:
    from agentgym.evaluate.check import check_scenario

    match = SNIPPET.search((ROOT / "docs" / "scenarios.md").read_text())
    assert match is not None
    pack = tmp_path / "heating"
    pack.mkdir()
    (pack / "scenario.py").write_text(match[2])
    findings = check_scenario(str(pack), tasks=20)
    assert [(f.name, f.why) for f in findings if f.status != "pass"] == []


@pytest.mark.parametrize(
    ("command", "options"), commands().items(), ids=list(commands())
)
def test_options_of_every_command_exist(
    agentgym: Command, command: str, options: set[str]
) -> None:
    ended = agentgym(*command.split(), "--help")
    assert ended.code == 0
    assert {option for option in options if f"{option} " not in ended.out} == set()


def test_files_that_the_architecture_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([a-z_/]+(?:/|\.py))`", page))
    assert len(named) > 30
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "src/agentgym" / path).exists(), path


def test_readme_opens_with_the_two_commands() -> None:
    """They are the first block of code, after one sentence on the project."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines[5:7] == [
        "    pip install uv && uv run agentgym train coding --framework langchain",
        "    uv run pytest",
    ]


def test_every_setting_of_the_yaml_example_is_known(tmp_path: Path) -> None:
    from agentgym import TrainingConfig

    page = (ROOT / "docs" / "cli.md").read_text()
    match = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert match is not None
    path = tmp_path / "run.yaml"
    path.write_text(match[1])
    assert TrainingConfig.from_yaml(path).episodes == 4000
