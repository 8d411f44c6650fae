"""Every install line of the project installs this project, never a namesake's.

On PyPI ``agentgym`` is another project, and this one is not published yet.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = ("*.md", "*.py", "*.toml", "*.yml", "*.yaml", "*.txt", "Dockerfile", "run")
FOLDERS = ("src", "docs", "examples", "recipes", "scenarios", "deploy", "benchmarks")
INSTALL = re.compile(
    r"(?:\b(?:pip3?|pipx|tool) install|\buv add|\buvx|--with)\b([^&;|]*)"
)
NAMESAKE = re.compile(
    r"(?<![\w/.-])agentgym(?:[-_]sdk)?+(?:\[[^]]*\])?+(?![\w/.-]| @ )"
)


def files() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    yield from (ROOT / ".ci" / "run", *ROOT.glob(".github/**/*.yml"))
    for folder in FOLDERS:
        for kind in KINDS:
            yield from (ROOT / folder).rglob(kind)


def strangers(text: str) -> list[str]:
    """Return the lines that would install a namesake from an index."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [
        line
        for line in lines
        if re.search(r"(?<![\w-])agentgym\[", line)
        or any(NAMESAKE.search(found) for found in INSTALL.findall(line))
    ]


@pytest.mark.parametrize(
    "line",
    [
        'pip install "agentgym[local]"',
        "pip install --no-deps agentgym",
        "uv pip install --python x \\\n    agentgym",
        "uvx agentgym train coding",
        "uv run --with agentgym python",
        "pip install agentgym-sdk",
        'uv add "agentgym-sdk[local]"',
    ],
)
def test_a_line_that_installs_a_namesake_is_found(line: str) -> None:
    assert strangers(f"text\n{line}\ntext") != []


@pytest.mark.parametrize(
    "line",
    [
        'pip install -e "path/agentgym/clone[local]"',
        'pip install "dist/agentgym_sdk-0.1.0-py3-none-any.whl[local]"',
        'uv pip install "agentgym-sdk[local] @ file:///x.whl"',
        "pip install uv && uv run agentgym train coding",
    ],
)
def test_a_line_that_installs_this_project_passes(line: str) -> None:
    assert strangers(line) == []


@pytest.mark.slow
def test_no_install_line_leads_to_another_project() -> None:
    found = {str(path): strangers(path.read_text()) for path in files()}
    assert len(found) > 300
    assert {path: lines for path, lines in found.items() if lines} == {}
