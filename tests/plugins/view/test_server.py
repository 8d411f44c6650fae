"""The viewer's server: who may ask, what it answers, and that it changes nothing."""

import hashlib
import json
import re
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from agentgym.errors import UsageError
from agentgym.evaluate.rows import share_span
from agentgym.plugins.view.server import ViewServer, kept_token
from agentgym.rollout.store.store import Store
from agentgym.train.result import effect_lines
from agentgym.train.run_folder import RunFolder
from tests.plugins.view.conftest import Ask
from tests.plugins.view.made_run import (
    add_rollout,
    make_run,
    reward,
    tasks,
    tool_call,
)
from tests.plugins.view.test_report import measured
from tests.ui import made_up

STATIC = Path(str(files("agentgym.plugins.view"))) / "static"
MOST_BYTES = 300_000
NAMED = re.compile(r"""(?:from ?|src=|href=)["']([./][^"']+)["']""")


def state_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Return hash and time of every file below a folder."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
        )
        for path in [folder, *folder.rglob("*")]
    }


def read_all(ask: Ask, run: str = "demo") -> None:
    """Open every endpoint of a run."""
    assert ask("runs").status_code == 200
    for path in ("", "/facets", "/curves?by=roles", "/graph", "/rollouts"):
        assert ask(f"runs/{run}{path}").status_code == 200
    for row in ask(f"runs/{run}/rollouts").json()["rows"]:
        own = f"runs/{run}/rollouts/{row['rollout_id']}"
        assert ask(own).status_code == 200
        assert ask(f"{own}/tokens").status_code == 200
    assert ask(f"runs/{run}/confusion", phase="after").status_code == 200


@pytest.mark.slow
def test_data_need_the_token_and_the_page_this_machines_name(server: Any) -> None:
    def status(path: str, **headers: str) -> int:
        return httpx.get(f"{server.base}{path}", headers=headers).status_code

    token = {"X-Agentgym-Token": server.token}
    assert status("/api/runs", **token) == 200
    assert status("/api/runs") == 401
    assert status("/api/runs", **{"X-Agentgym-Token": "0" * 32}) == 401
    assert status("/api/runs", Host="evil.example", **token) == 403
    assert status("/", Host="evil.example") == 403
    assert status("/api/runs", Origin="https://evil.example", **token) == 403
    assert status("/api/runs", Origin="null", **token) == 403
    assert status("/api/runs", Origin=server.base, **token) == 200
    answer = httpx.post(f"{server.base}/api/runs", headers=token)
    assert answer.status_code == 405


def test_every_answer_forbids_inline_scripts_and_other_hosts(server: Any) -> None:
    page = httpx.get(server.base)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "<script>" not in page.text
    assert "style=" not in page.text
    assert server.token not in page.text


def test_vendored_files_are_as_published_and_the_page_is_small() -> None:
    listed = json.loads((STATIC / "vendor" / "vendored.json").read_text())
    known = {entry["file"]: entry["sha256"] for entry in listed}
    code = {".mjs", ".js", ".css"}
    found = {p.name for p in (STATIC / "vendor").iterdir() if p.suffix in code}
    assert set(known) == found
    for name, expected in known.items():
        body = (STATIC / "vendor" / name).read_bytes()
        assert hashlib.sha256(body).hexdigest() == expected, name
    for entry in listed:
        assert entry["version"]
        assert entry["licence"] in ("MIT", "Apache-2.0")
    assert sum(p.stat().st_size for p in STATIC.rglob("*.*")) < MOST_BYTES


@pytest.mark.slow
def test_every_file_that_the_page_names_is_served(server: Any) -> None:
    left, seen = ["/"], set[str]()
    while left:
        path = left.pop()
        seen.add(path)
        answer = httpx.get(f"{server.base}{path}")
        assert answer.status_code == 200, path
        found = NAMED.findall(answer.text) if "uPlot" not in path else []
        left += {urljoin(path, name) for name in found} - seen - {*left}
    assert {"/static/app.js", "/static/vendor/preact.mjs", "/static/rollout.js"} <= seen
    assert httpx.get(f"{server.base}/static/../server.py").status_code == 404


@pytest.mark.slow
def test_rollouts_are_filtered_sorted_and_paged(ask: Ask) -> None:
    def ids(**query: Any) -> list[str]:
        answer = ask("runs/demo/rollouts", **query).json()
        assert not answer["is_loading"]
        return [row["rollout_id"] for row in answer["rows"]]

    assert len(ids()) == 4
    assert ids(outcome="dropped", reason="timeout") == ["s00001-t000-00"]
    assert ids(phase="train", roles="planner") == ["s00001-t000-01"]
    assert ids(rules="Read … before you edit it.") == ["s00001-t000-01"]
    assert set(ids(wrong_argument="1")) == {
        "before_held-out-t0000-00",
        "s00001-t000-01",
    }
    assert ids(text="elsewhere.py no such") == ["before_held-out-t0000-00"]
    assert ids(sort="-reward", limit=1) == ["after_held-out-t0000-00"]
    assert ids(sort="rollout_id", limit=1, offset=1) == ["before_held-out-t0000-00"]
    assert ids(step="1,4", held_out="held-out") == ["after_held-out-t0000-00"]
    assert ask("runs/demo/rollouts", colour="red").status_code == 400
    assert ask("runs/demo/rollouts", sort="words;").status_code == 400
    assert ask("runs/demo/rollouts", offset="-1").status_code == 400


def test_facets_count_what_filters_can_name(ask: Ask) -> None:
    found = ask("runs/demo/facets").json()
    assert found["all"] == 4
    assert dict(found["outcome"]) == {"succeeded": 1, "failed": 2, "dropped": 1}
    assert dict(found["roles"]) == {"planner": 1, "coder": 1}
    assert found["wrong_argument"] == 2


def test_the_first_wrong_call_stands_with_the_needed_one(ask: Ask) -> None:
    page = ask("runs/demo/rollouts/before_held-out-t0000-00").json()
    first = page["judgement"]["first_wrong"]
    made = [step for step in page["steps"] if step["type"] == "tool_call"]
    needed = page["judgement"]["needed"][first["needed"]]
    assert made[first["call"]]["arguments"] != needed["arguments"]
    assert made[first["call"]]["name"] == needed["tool"]
    assert first["words"].startswith("The tool is right")
    assert {row["phase"] for row in page["same_task"]} == {"before", "after", "train"}
    assert page["task_line"]["expect"][0]["tool"] == needed["tool"]
    right = ask("runs/demo/rollouts/after_held-out-t0000-00").json()
    assert right["judgement"]["first_wrong"] is None
    team = ask("runs/demo/rollouts/s00001-t000-01").json()
    assert team["graph"]["turns"] == [{"from": "planner", "to": "coder", "count": 1}]
    assert [row["rollout_id"] for row in team["siblings"]] == [
        "s00001-t000-00",
        "s00001-t000-01",
    ]


def test_tokens_show_how_they_were_trained(ask: Ask, run: RunFolder) -> None:
    trained: dict[str, Any] = {"bucket": "trained", "reason": "", "advantage": -0.5}
    calls: list[dict[str, Any]] = [
        {**trained, "spans": [[1, 3]], "gaps": [0.01, -0.2]},
        {"bucket": "masked", "reason": "no trainable component"},
    ]
    own = "s00001-t000-01"
    run.append_credit([{"rollout": own, "calls": calls[:1]}])
    run.append_credit([{"rollout": own, "calls": calls}])
    first, second = ask(f"runs/demo/rollouts/{own}/tokens").json()["calls"]
    assert first["trained"] == [False, True, True]
    assert (first["advantage"], first["logprobs"]) == (-0.5, [-0.1, -0.2, -0.3])
    assert first["gaps"] == [None, 0.01, -0.2]
    assert second["reason"] == "no trainable component"
    assert second["gaps"] == [None] * 3
    run.append_credit([{"rollout": own, "calls": [{**calls[0], "gaps": []}, {}]}])
    near, _ = ask(f"runs/demo/rollouts/{own}/tokens").json()["calls"]
    assert near["gaps"] == [None, 0.0, 0.0]


def test_a_rollout_that_was_not_trained_says_why(ask: Ask, run: RunFolder) -> None:
    def said(rollout: str) -> str:
        return str(ask(f"runs/demo/rollouts/{rollout}/tokens").json()["credit"])

    assert "measurement" in said("after_held-out-t0000-00")
    assert "no credit.jsonl" in said("s00001-t000-01")
    run.append_credit([])
    (run.path / "credit.jsonl").touch()
    assert "No training step" in said("s00001-t000-01")


def test_the_page_has_the_terminals_sentences_and_rounding(
    ask: Ask, run: RunFolder
) -> None:
    before = made_up.evaluation(0.5).metrics
    after = made_up.evaluation(0.9, samples=2).metrics
    result = made_up.result(run.path, baseline=before, metrics=after)
    (run.path / "result.json").write_text(result.model_dump_json())
    page = ask("runs/demo").json()
    shown = page["sets"][0]["before"]["pass_k"]["value"]
    assert shown == before.at_most(2).pass_k.value != before.pass_k.value
    terminal = [words for words, _ in effect_lines(result)]
    assert page["effect"]["words"] == terminal[0]
    assert page["effect"]["worse"] in terminal
    assert page["after"]["pass_1"]["text"] == share_span(result.metrics.pass_1)


def test_families_that_changed_beyond_chance_are_named(
    ask: Ask, run: RunFolder
) -> None:
    before = measured({"refund": 8, "track": 6, "cancel": 2}, tasks=12)
    after = measured({"refund": 1, "track": 5, "cancel": 8}, tasks=12)
    result = made_up.result(run.path, baseline=before, metrics=after)
    (run.path / "result.json").write_text(result.model_dump_json())
    rows = ask("runs/demo").json()["families"]
    found = {row["name"]: row["change"].partition(", p ")[0] for row in rows}
    assert found == {"refund": "worse", "track": "", "cancel": "better"}
    assert re.search(r", p (< 0\.0001|= 0\.0\d+)$", rows[0]["change"])


def test_the_next_failed_rollout_is_of_the_same_purpose(ask: Ask) -> None:
    def next_failed(rollout: str) -> Any:
        return ask(f"runs/demo/rollouts/{rollout}").json()["next_failed"]

    assert next_failed("s00001-t000-00") == "s00001-t000-01"
    assert next_failed("s00001-t000-01") is None
    assert next_failed("after_held-out-t0000-00") is None


def test_the_kept_token_is_private_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    first = kept_token()
    assert kept_token() == first
    assert (tmp_path / "home" / "view-token").stat().st_mode & 0o777 == 0o600
    with ViewServer(list, token=first) as server:
        assert server.url.endswith(first)
    monkeypatch.setenv("AGENTGYM_HOME", "/proc/none")
    assert len(kept_token()) == len(first)


@pytest.mark.slow
def test_looking_changes_no_file(ask: Ask, run: RunFolder) -> None:
    before = state_of(run.path)
    read_all(ask)
    assert state_of(run.path) == before


@pytest.mark.slow
def test_a_store_that_is_written_is_read_as_it_grows(ask: Ask, run: RunFolder) -> None:
    with Store(run.path / "rollouts.db") as store:
        [task, *_] = tasks()
        add_rollout(store, "s00002-t000-00", task, [], reward(True), step=2)
        store.flush()
        assert ask("runs/demo/rollouts").json()["total"] == 5
        before = state_of(run.path)
        read_all(ask)
        assert state_of(run.path) == before
        add_rollout(store, "s00002-t000-01", task, [], reward(True), step=2)
        store.flush()
        assert ask("runs/demo/rollouts").json()["total"] == 6
        store.delete_steps_after(1)
        store.flush()
        names = [r["rollout_id"] for r in ask("runs/demo/rollouts").json()["rows"]]
        assert not {"s00002-t000-00", "s00002-t000-01"} & set(names)


@pytest.mark.slow
@pytest.mark.parametrize("with_index", [True, False], ids=["killed", "copied"])
def test_a_store_left_by_a_kill_is_read_with_its_journal(
    ask: Ask, run: RunFolder, tmp_path: Path, with_index: bool
) -> None:
    """Also a copy of it without the journal's index, which SQLite makes again."""
    killed = make_run(tmp_path / "runs" / "killed", status="running")
    (killed.path / "rollouts.db-shm").unlink(missing_ok=True)
    with Store(run.path / "rollouts.db") as store:
        [task, *_] = tasks()
        add_rollout(store, "s00002-t000-00", task, [], reward(True), step=2)
        store.flush()
        for end in ("", "-wal", "-shm")[: 2 + with_index]:
            name = f"rollouts.db{end}"
            shutil.copy(run.path / name, killed.path / name)
    before = state_of(killed.path)
    assert ask("runs/killed/rollouts").json()["total"] == 5
    read_all(ask, "killed")
    assert ask("runs/killed").json()["status"] == "killed"
    if with_index:
        assert state_of(killed.path) == before


def test_a_store_of_another_version_says_what_to_do(ask: Ask, run: RunFolder) -> None:
    said = "version of agentgym that made it"
    with sqlite3.connect(run.path / "rollouts.db") as file:
        file.execute("PRAGMA user_version=99")
    answer = ask("runs/demo/rollouts")
    assert answer.status_code == 409
    assert said in answer.json()["error"]["message"]
    assert ask("runs/demo").status_code == 200


@pytest.mark.slow
def test_what_cannot_be_read_is_a_sentence(
    ask: Ask, run: RunFolder, tmp_path: Path
) -> None:
    def said(path: str) -> str:
        answer = ask(path)
        assert answer.status_code in (404, 409)
        return str(answer.json()["error"]["message"])

    make_run(tmp_path / "runs" / "young", steps=0, status="running")
    young = ask("runs/young/rollouts").json()
    assert (young["total"], "does not exist" in young["note"]) == (0, True)
    assert "does not exist" in said("runs/young/rollouts/s00001-t000-00")
    assert ask("runs/young").json()["curves"]["step"] == []
    assert "nope" in said("runs/demo/rollouts/nope")
    (run.path / "rollouts.db").write_bytes(b"SQLite format 3\0" + b"\0" * 5000)
    assert "cannot be read" in said("runs/demo/rollouts")
    (tmp_path / "runs" / "young" / "run.json").write_text("{")
    rows = {row["name"]: row for row in ask("runs").json()["runs"]}
    assert rows["young"]["status"] == "unreadable"
    shutil.rmtree(run.path)
    assert "demo" in said("runs/demo")


def test_a_run_with_settings_of_another_version_is_shown(
    ask: Ask, run: RunFolder
) -> None:
    record = json.loads((run.path / "run.json").read_text())
    record["config"] |= {"setting_of_another_version": 3}
    del record["config"]["temperature"]
    (run.path / "run.json").write_text(json.dumps(record))
    assert ask("runs/demo").json()["status"] == "done"
    assert ask("runs/demo/rollouts").json()["total"] == 4


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda result: json.dumps(result | {"newer": 1}), "newer: Extra inputs"),
        (lambda r: json.dumps(r.pop("saved") and r), "saved: Field required"),
        (lambda result: '{"scenario": "cod', ""),
        (lambda result: "", ""),
    ],
    ids=["newer", "older", "cut", "empty"],
)
def test_a_run_is_shown_without_a_result_that_cannot_be_read(
    ask: Ask, run: RunFolder, change: Callable[[Any], str], why: str
) -> None:
    """A finished run is shown whole but for what its result has."""
    path = run.path / "result.json"
    path.write_text(change(json.loads(path.read_text())), encoding="latin-1")
    page = ask("runs/demo").json()
    assert page["status"] == "done"
    assert "after" not in page
    assert page["effect"] is None
    assert page["curves"]["step"] == [1, 2, 3]
    [found] = [each for each in page["findings"] if "result" in each["title"]]
    assert found["evidence"].startswith(f"{path} cannot be read: {why}")
    assert "move the file away" in found["evidence"]
    [row] = ask("runs").json()["runs"]
    assert (row["status"], row["scenario"]) == ("done", "coding")
    assert row["problem"] == found["evidence"]
    assert ask("runs/demo/rollouts").json()["total"] == 4


def test_a_port_in_use_names_the_option() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="give another with --port"):
            ViewServer(list, port=port)


def test_a_scenario_that_is_gone_leaves_the_rest(ask: Ask, run: RunFolder) -> None:
    record = json.loads((run.path / "run.json").read_text())
    record["config"]["scenario"] = "./gone/scenario.py"
    (run.path / "run.json").write_text(json.dumps(record))
    page = ask("runs/demo/rollouts/before_held-out-t0000-00").json()
    assert page["judgement"]["needed"] is None
    assert "could not be loaded" in page["judgement"]["problem"]
    assert page["judgement"]["first_wrong"]["call"] == 0


@pytest.mark.slow
def test_no_change_is_lost_between_a_page_and_its_events(
    server: Any, ask: Ask, run: RunFolder, tmp_path: Path
) -> None:
    shown = ask("runs/demo").json()["cursor"]
    assert ask("runs/demo/rollouts").json()["cursor"] == shown
    listed = ask("runs").json()["cursor"]
    with events(server, "runs/demo/events") as found:
        assert next(found) == shown
        add = Store(run.path / "rollouts.db")
        [task, *_] = tasks()
        add_rollout(add, "s00003-t000-00", task, [tool_call("lint", {})], reward(True))
        add.close()
        more = next(found)
        assert (more["steps"], more["rollouts"] == shown["rollouts"]) == (
            shown["steps"],
            False,
        )
        run.append_metrics(asdict(made_up.step(4)))
        assert next(found)["steps"] != shown["steps"]
    make_run(tmp_path / "runs" / "young", steps=0, status="running")
    with events(server, "events") as found:
        assert next(found) != listed


@contextmanager
def events(server: Any, path: str) -> Iterator[Iterator[dict[str, str]]]:
    """Subscribe to events: the hashes of each part that may change."""
    headers = {"X-Agentgym-Token": server.token}
    address = f"{server.base}/api/{path}"
    with httpx.stream("GET", address, headers=headers, timeout=10) as answer:
        yield (json.loads(line[6:]) for line in answer.iter_lines() if line)
