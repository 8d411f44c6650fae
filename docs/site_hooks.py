"""Hooks of MkDocs: pages from outside docs/, and checks of the built site.

mkdocs.yml names this file. Pages below ``repository/`` in its navigation are files of
the repository, as examples/README.md; their links, and links to them, work as on
GitHub.
"""

import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from posixpath import relpath
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_PREFIX = "repository/"
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
_log = logging.getLogger("mkdocs.plugins.site")  # --strict counts its warnings


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the navigation that lie outside docs/."""
    for path in _paths(config.nav):
        if path.startswith(_PREFIX):
            source = _ROOT / path.removeprefix(_PREFIX)
            files.append(File.generated(config, path, abs_src_path=str(source)))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Return a page whose links to files of the repository lead to pages of the site.

    A link to a file that is not a page of the site becomes its text.
    """
    uri = page.file.src_uri
    source = _source(uri)

    def replace(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        file = (source.parent / path).resolve()
        found = _uri(file)
        if found is None or files.get_file_from_path(found) is None:
            return label if file.exists() else match[0]
        link = relpath(found, Path(uri).parent.as_posix())
        return f"[{label}]({link}{'#' * bool(anchor)}{anchor})"

    return _LINK.sub(replace, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Warn of links and anchors that lead nowhere, and of files from other hosts."""
    site = Path(config.site_dir)
    pages = {path: _Links(path) for path in sorted(site.rglob("*.html"))}
    checked = 0
    for path, page in pages.items():
        for link in page.loaded:
            if urlsplit(link).netloc:
                _log.warning("%s loads %s from another host", path.name, link)
        for link in page.links:
            if urlsplit(link).scheme or urlsplit(link).netloc:
                continue
            checked += 1
            target = _target(link, path, site)
            anchor = unquote(urlsplit(link).fragment)
            if not target.is_file():
                _log.warning("%s links to %s, which does not exist", path.name, link)
            elif anchor and target in pages and anchor not in pages[target].anchors:
                _log.warning("%s links to %s: no such anchor", path.name, link)
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    message = "%d pages, %d links checked, %.1f MB"
    _log.info(message, len(pages), checked, size / 1e6)


class _Links(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and "href" in given:
            self.loaded.append(given["href"])
        if _LOADED.get(tag) in given:
            self.loaded.append(given[_LOADED[tag]])


def _target(link: str, page: Path, site: Path) -> Path:
    """Return the file that a link of a built page leads to; /x is below the site."""
    path = unquote(urlsplit(link).path)
    if not path:
        return page
    folder = site if path.startswith("/") else page.parent
    target = (folder / path.lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target


def _paths(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation, or of a part of it."""
    if isinstance(nav, str):
        yield nav
    elif nav:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from _paths(part)


def _source(uri: str) -> Path:
    if uri.startswith(_PREFIX):
        return _ROOT / uri.removeprefix(_PREFIX)
    return _ROOT / "docs" / uri


def _uri(file: Path) -> str | None:
    """Return the address of a file in the site; None outside the repository."""
    if file.is_relative_to(_ROOT / "docs"):
        return file.relative_to(_ROOT / "docs").as_posix()
    if file.is_relative_to(_ROOT):
        return _PREFIX + file.relative_to(_ROOT).as_posix()
    return None
