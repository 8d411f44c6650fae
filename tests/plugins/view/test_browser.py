"""The viewer in a real browser: Debian's Chromium, headless, through Playwright."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from agentgym.rollout.store.store import Store
from agentgym.train.run_folder import list_runs
from tests.plugins.view.made_run import (
    add_rollout,
    fill,
    fill_team,
    make_run,
    reward,
    tasks,
    tool_call,
)
from tests.ui import made_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.slow  # starts a browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
# axe-core 4.14.1, MPL-2.0, as published on npm.
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
FLAGS = ["--no-sandbox", "--disable-background-networking"]
HOSTILE = (
    "<script>document.title='hacked'</script><img src=x onerror=\"document.title=1\">"
    "\x1b[31mred\x1b[0m \u202egnp.exe &amp; </pre><b>bold</b> "
)
LONG = HOSTILE + "x" * 2**20
GAP = "Log-probability gap between sampler and learner (nats)"
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A headless browser; tests are skipped where there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield made
        made.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, a short one, and one with hostile text."""
    root = tmp_path_factory.mktemp("view") / "runs"
    for name, steps in (("demo", 30), ("other", 5)):
        run = make_run(root / name, steps=steps, result=name == "demo")
        with Store(run.path / "rollouts.db") as store:
            fill(store)
    trained = {"bucket": "trained", "reason": "", "advantage": 0.5}
    run.append_credit(
        [
            {
                "rollout": "s00001-t000-01",
                "calls": [{**trained, "spans": [[1, 3]], "gaps": [0.01, -0.2]}] * 2,
            }
        ]
    )
    team = make_run(root / "team", steps=2)
    with Store(team.path / "rollouts.db") as store:
        fill_team(store)
    planned = {**trained, "spans": [[0, 2]], "gaps": [0.1, -0.3]}
    team.append_credit([{"rollout": "s00001-t000-00", "calls": [planned] * 2}])
    hostile = make_run(root / "hostile", steps=1)
    [task, *_] = tasks()
    with Store(hostile.path / "rollouts.db") as store:
        asked = task.model_copy(update={"instruction": HOSTILE})
        call = tool_call("read_file", {"path": HOSTILE}, "raised", LONG)
        add_rollout(store, "before_held-out-t0000-00", asked, [call], reward(False))
    return root


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Any]:
    """The viewer of that folder."""
    from agentgym.plugins.view.server import ViewServer

    with ViewServer(lambda: list_runs(folder)) as made:
        yield made.start()


@pytest.fixture
def visit(browser: "Browser", server: Any) -> Iterator[Open]:
    """Open a place of the page; any error or foreign request fails the test."""
    problems: list[str] = []
    contexts = []

    def open_page(path: str = "/", width: int = 1280, scheme: Any = "light") -> "Page":
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: note(said.type, said.text))
        page.on("request", lambda request: check(request.url))
        page.goto(f"{server.url}#{path}")
        page.locator("h1").wait_for()
        return page

    def note(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            problems.append(text)

    def check(url: str) -> None:
        if urlsplit(url).scheme != "data" and not url.startswith(server.base):
            problems.append(f"request to {url}")

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def test_four_clicks_lead_from_the_list_to_the_first_wrong_call(visit: Open) -> None:
    page = visit()
    page.get_by_role("link", name="demo").click()
    page.get_by_role("heading", name="demo").wait_for()
    assert page.get_by_text("Training tasks", exact=True).count() >= 1
    assert page.locator(".u-over").count() >= 6  # curves are drawn
    page.get_by_role("link", name="Rollouts").first.click()
    page.get_by_label("right tool, wrong argument").check()
    page.get_by_text("2 rollouts").wait_for()
    page.get_by_role("link", name="before_held-out-t0000-00").click()
    first = page.locator("#first-wrong")
    assert "First wrong call (number 1 of 1)" in first.inner_text()
    assert "elsewhere.py" in first.locator(".made").inner_text()
    needed = first.locator(".needed").inner_text()
    assert "elsewhere.py" not in needed
    assert first.locator(".differs").count() == 2
    assert "There is no such file." in page.locator(".step.error").inner_text()
    page.get_by_role("button", name="Tokens").click()
    page.locator(".token").first.wait_for()
    assert page.locator(".token").count() == 3
    page.get_by_role("link", name="after_held-out-t0000-00").first.click()
    page.get_by_text("No call was wrong.").wait_for()


def test_a_trained_token_says_how_far_the_learner_was(visit: Open) -> None:
    page = visit("/run/other/rollout/s00001-t000-01")
    page.keyboard.press("t")
    token = page.locator(".token.good").nth(1)
    token.wait_for()
    title = token.get_attribute("title") or ""
    assert "log-probability when sampled -0.300" in title
    assert "the learner gave it -0.500, a gap of -0.200 nats" in title
    assert "gap" not in (page.locator(".token").first.get_attribute("title") or "")


def test_a_team_is_shown_as_it_ran_and_summed_up(visit: Open) -> None:
    page = visit("/run/team")
    sums = page.locator(".graph")
    sums.wait_for()
    assert "planner, then coder: 2" in (
        sums.get_by_role("img").get_attribute("aria-label") or ""
    )
    assert sums.locator("path.turn").count() == 2
    page.locator("#team-phase").select_option("after")
    page.get_by_text("Sums over 0 scored rollouts").wait_for()
    page.get_by_label("Lines").select_option("roles")
    page.get_by_text("Model calls of a rollout by role").wait_for()
    drawn = page.locator(".charts").get_by_role("img")
    said = {line.split(" by step;")[0]: line for line in labels(drawn)}
    assert "last: coder 35, planner 10" in said["Sampled tokens of a rollout by role"]
    assert "last: coder 0.200, planner 0.200" in said[f"{GAP} by role"]
    page.goto(page.url.split("#")[0] + "#/run/team/rollout/s00002-t000-00")
    order = page.locator(".order li")
    order.first.wait_for()
    assert order.all_inner_texts() == ["planner", "coder", "coder"]
    assert page.locator(".graph").count() == 2
    page.get_by_text("Sums over 2 scored rollouts of this task").wait_for()
    ended = page.locator("h2", has_text="State at the end").locator("xpath=..")
    assert "cancelled" in ended.inner_text()
    assert "src/old.py (removed)" in ended.inner_text()


def labels(pictures: "Locator") -> list[str]:
    """Return what each picture says to a reader who does not see it."""
    return [each.get_attribute("aria-label") or "" for each in pictures.all()]


def test_a_run_is_listed_as_it_begins_warns_as_it_goes_on_and_may_be_removed(
    browser: "Browser", tmp_path: Path
) -> None:
    from agentgym.plugins.view.server import ViewServer

    page = browser.new_page()
    with ViewServer(lambda: list_runs(tmp_path)) as empty:
        empty.start()
        page.goto(empty.url)
        said = page.locator("#no-runs").inner_text()
        assert "agentgym train coding --framework langchain" in said
        made = make_run(tmp_path / "young", steps=1)
        page.get_by_role("link", name="young").click()  # listed without a reload
        page.get_by_role("heading", name="young").wait_for()
        page.get_by_text("1 step").wait_for()
        for number in range(2, 12):
            step = made_up.step(number, logprob_gap=0.5)
            made.append_metrics(asdict(step))
        page.get_by_text("nats from the learner's in the first steps").wait_for()
        shutil.rmtree(made.path)
        removed = page.get_by_role("alert")
        removed.wait_for()
        assert "No run is named 'young'" in removed.inner_text()
        assert "It was removed" in removed.inner_text()
        page.close()


def test_rollouts_are_filtered_by_the_page(visit: Open) -> None:
    page = visit("/run/demo/rollouts")
    rows = page.locator("tbody tr")
    page.get_by_text("4 rollouts").wait_for()
    page.locator("#by-outcome").select_option("dropped")
    page.get_by_text("1 rollout", exact=True).wait_for()
    assert "timeout" in rows.first.inner_text()
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("4 rollouts").wait_for()
    page.locator("#find").fill("elsewhere.py")
    page.wait_for_url("**text=elsewhere.py**")  # the place can be linked to
    page.get_by_text("1 rollout", exact=True).wait_for()
    page.reload()
    page.get_by_text("1 rollout", exact=True).wait_for()
    page.go_back()
    page.get_by_text("4 rollouts").wait_for()
    page.get_by_role("button", name="reward").click()
    page.wait_for_url("**sort=-reward**")
    page.locator("#by-roles").select_option("planner")
    page.get_by_text("1 rollout", exact=True).wait_for()
    page.get_by_role("link", name="s00001-t000-01").click()
    page.get_by_text("Who spoke after whom").wait_for()


def test_runs_are_compared_in_one_picture(visit: Open) -> None:
    page = visit()
    for name in ("demo", "other"):
        page.get_by_label(f"compare {name}").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.get_by_role("heading", name="2 runs compared").wait_for()
    both = re.compile("demo.*other|other.*demo")  # each is loaded on its own
    page.get_by_role("img", name=both).first.wait_for()


def test_the_page_is_used_by_keys_alone(visit: Open) -> None:
    page = visit()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    name = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=name).wait_for()
    page.keyboard.press("/")
    page.get_by_role("heading", name="Rollouts").wait_for()
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert "next or previous row" in page.locator(".help").inner_text()
    page.keyboard.press("u")
    page.get_by_role("heading", name=name).wait_for()


def test_hostile_text_stays_text(visit: Open) -> None:
    page = visit("/run/hostile/rollout/before_held-out-t0000-00")
    page.locator("#first-wrong").wait_for()
    shown = page.locator(".step.call").inner_text()
    assert "<script>document.title" in shown
    assert "⟨001b⟩[31mred" in shown
    assert "⟨202e⟩gnp.exe" in shown
    assert "&amp;" in shown
    assert "hacked" not in page.title()
    assert page.locator("main script, main img, main b >> text=bold").count() == 0
    page.get_by_role("button", name="characters").first.click()
    whole = page.locator(".made pre").last.inner_text()
    assert len(whole) > 2**20
    page.get_by_role("link", name="Rollouts").click()
    page.locator("tbody tr").first.wait_for()
    assert "⟨202e⟩" in page.locator(".instruction").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_fit(visit: Open, scheme: str) -> None:
    from playwright.sync_api import expect

    source = AXE.read_text()
    assert hashlib.sha256(source.encode()).hexdigest() == AXE_SHA256
    places = (
        "/",
        "/run/demo",
        "/run/demo/rollouts",
        "/run/demo/rollout/s00001-t000-01",
        "/run/team",
        "/compare?runs=demo,other",
    )
    for place in places:
        page = visit(place, 400 if scheme == "dark" else 1280, scheme)
        expect(page.get_by_text("Loading…")).to_have_count(0, timeout=20_000)
        page.evaluate(source)
        found = page.evaluate("axe.run()")
        serious = [
            (place, each["id"], each["nodes"][0]["html"])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []
        wide = "document.documentElement.scrollWidth > innerWidth"
        assert not page.evaluate(wide), place


def test_another_sites_page_reads_nothing(
    browser: "Browser", server: Any, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("<!doctype html><title>Other</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    other = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=other.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{other.server_port}/")
    read = """async ([url, token]) => {
        try {
            const found = await fetch(url, {headers: {'X-Agentgym-Token': token}});
            return [found.status, await found.text()];
        } catch (error) { return 'refused'; }
    }"""
    asked = [f"{server.base}/api/runs", server.token]
    assert page.evaluate(read, asked) == "refused"
    framed = """(url) => new Promise((done) => {
        const frame = document.createElement('iframe');
        frame.onload = () => {
            try { done(frame.contentDocument.body.textContent); }
            catch { done('refused'); }
        };
        frame.src = url;
        document.body.append(frame);
    })"""
    assert page.evaluate(framed, server.url) in ("refused", "")
    page.close()
    other.shutdown()
    other.server_close()


@pytest.mark.timeout(400)  # a whole training
def test_a_live_run_is_watched_to_its_end(visit: Open, folder: Path) -> None:
    settings = {"test_tasks": 4, "eval_tasks": 4, "eval_samples": 1}
    words = ["train", "coding", "--framework", "native", "--episodes", "128"]
    words += ["--name", "live", "--output", str(folder), "--yes"]
    for name, value in settings.items():
        words += ["--set", f"{name}={value}"]
    with subprocess.Popen(
        [sys.executable, "-m", "agentgym", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as training:
        while not (folder / "live" / "run.json").exists():
            assert training.poll() is None, training.stderr and training.stderr.read()
        page = visit("/run/live")
        page.get_by_text("running", exact=True).wait_for()
        page.locator(".outcome.done").wait_for(timeout=300_000)
        page.get_by_text("2 steps").wait_for()
        assert training.wait(60) == 0
    page.get_by_label("Lines").select_option("family")
    page.get_by_text("Sampled tokens of a rollout by family").wait_for()
    page.get_by_text(f"{GAP} by family").wait_for()
    page.locator("td a.row").first.click()  # a family
    page.locator("#by-held_out").wait_for()
    assert page.locator("#by-held_out").input_value() == "held-out"
    assert page.locator("#by-outcome").input_value() == "failed"
    page.go_back()
    page.get_by_role("link", name="Rollouts").first.click()
    page.locator("tbody tr").first.wait_for()
    page.locator("#by-phase").select_option("train")
    page.get_by_text("128 rollouts").wait_for()
    page.locator("tbody a.row").first.click()
    page.get_by_role("button", name="Tokens").click()
    page.locator(".tokens").first.wait_for()
    said = page.locator(".tokens").first.inner_text()
    assert "Trained with the advantage" in said or "masked" in said
    lines = (folder / "live" / "credit.jsonl").read_text().splitlines()
    assert len(lines) == 128
    buckets = {call["bucket"] for line in lines for call in json.loads(line)["calls"]}
    assert "trained" in buckets
