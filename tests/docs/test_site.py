"""The documentation site: its navigation, links and anchors, without building it.

``.ci/run`` builds it; this holds what needs no MkDocs.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

import agentgym.errors
from tests.test_language import PATTERNS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *sorted(DOCS.glob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted((ROOT / "src").rglob("README.md")),
    *sorted((ROOT / "scenarios").rglob("README.md")),
]
SUBJECTS = [
    "Quick start",
    "Your agent",
    "Your tasks",
    "Your scenario",
    "Your reward",
    "Your GPU",
    "Reading a run",
    "Why it does not learn",
    "Cost and time",
    "API reference",
    "Architecture",
]

PUBLIC = [
    "agentgym",
    "agentgym.plugins.improve",
    "agentgym.integrations",
    "agentgym.rollout",
    "agentgym.sandbox",
    "agentgym.scenarios",
    "agentgym.packs.kit.code_rewards",
    "agentgym.plugins.trl",
]
"""Packages whose ``__all__`` is public."""

IMPORTS = re.compile(
    r"^from (agentgym[\w.]*) import (?:\(([^)]+)\)|(.+))$", re.MULTILINE
)
RUNS = re.compile(r"(agentgym|uv|python|pip|git|kubectl) ")


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, in which a tag names a function."""


Loader.add_multi_constructor(  # type: ignore[no-untyped-call]
    "tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix
)


def settings() -> dict[str, Any]:
    found = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    assert isinstance(found, dict)
    return found


def paths(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from paths(part)


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text())


@cache
def anchors(page: Path) -> set[str]:
    """Return a page's anchors, as GitHub and the site make them from headings."""
    found = tokens(page)
    texts = (
        "".join(part.content for part in inline.children or ())
        for heading, inline in pairwise(found)
        if heading.type == "heading_open"
    )
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        for part in token.children or ():
            target = part.attrGet("href") or part.attrGet("src")
            if isinstance(target, str) and ":" not in target:
                yield target


def broken(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return True
    return bool(anchor) and file.suffix == ".md" and anchor not in anchors(file)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(paths(settings()["nav"]))
    assert len(listed) == len(set(listed))
    outside = {name.removeprefix("repository/") for name in listed if "/" in name}
    assert {name for name in listed if "/" not in name} == {
        page.name for page in DOCS.glob("*.md")
    }
    assert {str(p.relative_to(ROOT)) for p in ROOT.glob("examples/**/*.md")} <= outside
    assert [name for name in outside if not (ROOT / name).is_file()] == []


def test_the_navigation_follows_a_users_way() -> None:
    titles = [title for part in settings()["nav"] for title in part]
    assert [title for title in titles if title in SUBJECTS] == SUBJECTS


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert [target for target in links(page) if broken(page, target)] == []


def test_a_broken_link_is_found() -> None:
    page = DOCS / "quickstart.md"
    assert not broken(page, "cli.md#train")
    assert broken(page, "cli.md#no-such-heading")
    assert broken(page, "#no-such-heading")
    assert broken(page, "no_such_page.md")


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_page_begins_with_something_to_run(page: Path) -> None:
    found = [token for token in tokens(page) if token.map is not None]
    first = next(token for token in found if token.type in ("fence", "code_block"))
    start = (first.map or [0])[0]
    assert start <= 10
    headings = [token.map for token in found if token.tag == "h2"]
    assert all(where is None or start < where[0] for where in headings)
    assert first.info == "python" or RUNS.match(first.content)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_pages_use_plain_words(page: Path) -> None:
    """A heading as "What it costs" is plain on a page; the history is a record."""
    if page.name == "benchmarks_history.md":
        return
    words = "\n".join(
        part.content
        for token in tokens(page)
        for part in token.children or ()
        if part.type == "text"
    )
    found = {
        rule: match[0]
        for rule, pattern in PATTERNS.items()
        if rule != "a name for the thing, not a clause with what"
        and (match := re.search(pattern, words, re.IGNORECASE))
    }
    assert found == {}


def public_names() -> set[str]:
    """Return the names of the public packages, and those that the pages import."""
    packages = [import_module(name) for name in PUBLIC]
    found = {f"{m.__name__}.{name}" for m in packages for name in m.__all__}
    for page in (ROOT / "README.md", *DOCS.glob("*.md")):
        for match in IMPORTS.finditer(page.read_text()):
            names = re.findall(r"\w+", match[2] or match[3])
            found |= {f"{match[1]}.{name}" for name in names}
    return found - {"agentgym.__version__"}


def object_of(path: str) -> tuple[int, str]:
    """Return what is the same for a name and for where it is defined."""
    module, _, name = path.rpartition(".")
    return id(getattr(import_module(module), name)), name


def test_the_reference_has_every_public_name_once() -> None:
    page = (DOCS / "api_reference.md").read_text()
    paths = re.findall(r"^::: (agentgym\.\S+)$", page, re.MULTILINE)
    listed = [object_of(path) for path in paths]
    assert len(listed) == len(set(listed))
    public = {name: object_of(name) for name in public_names()}
    errors = vars(agentgym.errors).values()
    assert {
        name
        for name, found in public.items()
        if found not in listed and found[0] not in map(id, errors)
    } == set()


def test_ci_builds_the_site_and_a_warning_ends_it() -> None:
    command = "run --group docs mkdocs build --strict"
    ci = (ROOT / ".ci" / "run").read_text()
    assert ci.index("run mypy") < ci.index(command)
    assert f"uv {command}" in (ROOT / "CONTRIBUTING.md").read_text()
    assert settings()["strict"] is True
    assert settings()["site_dir"].split("/")[0] + "/" in (
        (ROOT / ".gitignore").read_text().splitlines()
    )
