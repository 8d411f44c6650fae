"""Write screenshots of the viewer's pages for the docs.

    uv run python -m tests.view.screenshots RUN docs/images

Needs Debian's Chromium and Playwright, as the browser tests do.
"""

import shutil
import sys
from pathlib import Path

from agentgym.train.run_folder import RunFolder
from agentgym.view.server import ViewServer

SIZE = {"width": 1280, "height": 860}
NARROW = {"width": 400, "height": 860}


def main(run: Path, folder: Path) -> None:
    """Write a picture of each page of a run."""
    from playwright.sync_api import expect, sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    shown = RunFolder(run.resolve())
    here = f"/run/{shown.path.name}"
    failed = f"{here}/rollouts?phase=train&outcome=failed&wrong_argument=1"
    flags = ["--no-sandbox", "--disable-background-networking"]
    with ViewServer(lambda: [shown]) as server, sync_playwright() as playwright:
        server.start()
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for name, place, size, scheme in (
            ("viewer-runs", "/", SIZE, "light"),
            ("viewer-run", here, SIZE, "light"),
            ("viewer-rollouts", failed, SIZE, "light"),
            ("viewer-rollout", failed, SIZE, "light"),
            ("viewer-rollout-narrow", failed, NARROW, "dark"),
        ):
            context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{server.url}#{place}")
            page.locator("h1").wait_for()
            for said in ("Loading…", "still being read"):
                expect(page.get_by_text(said)).to_have_count(0, timeout=60_000)
            if "rollout" in name and name != "viewer-rollouts":
                page.locator("tbody a.row").first.click()
                page.locator("#first-wrong").wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=str(folder / f"{name}.png"))
            context.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
