"""Write screenshots of the viewer's pages for the docs.

    uv run python -m tests.plugins.view.screenshots docs/images RUN RUN

The first run is shown page by page; both stand in the list, and in one picture. Needs
Debian's Chromium and Playwright, as the browser tests do.
"""

import shutil
import sys
from pathlib import Path

from agentgym.plugins.view.server import ViewServer
from agentgym.train.run_folder import RunFolder

SIZE = {"width": 1280, "height": 860}
NARROW = {"width": 400, "height": 860}


def main(folder: Path, *runs: Path) -> None:
    """Write a picture of each page."""
    from playwright.sync_api import expect, sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    shown = [RunFolder(run.resolve()) for run in runs]
    names = [run.path.name for run in shown]
    here = f"/run/{names[0]}"
    failed = f"{here}/rollouts?phase=train&outcome=failed&wrong_argument=1"
    flags = ["--no-sandbox", "--disable-background-networking"]
    with ViewServer(lambda: shown) as server, sync_playwright() as playwright:
        server.start()
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for name, place, size, scheme in (
            ("viewer-runs", "/", SIZE, "light"),
            ("viewer-compare", f"/compare?runs={','.join(names)}", SIZE, "light"),
            ("viewer-run", here, SIZE, "light"),
            ("viewer-rollouts", failed, SIZE, "light"),
            ("viewer-rollout", failed, SIZE, "light"),
            ("viewer-tokens", failed, SIZE, "light"),
            ("viewer-rollout-narrow", failed, NARROW, "dark"),
        ):
            context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{server.url}#{place}")
            page.locator("h1").wait_for()
            for said in ("Loading…", "still being read"):
                expect(page.get_by_text(said)).to_have_count(0, timeout=60_000)
            if place == failed and name != "viewer-rollouts":
                page.locator("tbody a.row").first.click()
                page.locator("#first-wrong").wait_for()
            if name == "viewer-tokens":
                page.keyboard.press("t")
                page.locator(".tokens").first.scroll_into_view_if_needed()
            page.wait_for_timeout(500)
            page.screenshot(path=str(folder / f"{name}.png"))
            context.close()
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
