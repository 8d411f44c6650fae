"""The fake of SkyPilot's command: ``sky_program.py FOLDER WORD…``; standard library.

It answers in the shapes and words that SkyPilot 0.14.1 was seen to answer in, or has in
its source. ``FOLDER/state.json`` says what there is and what goes wrong.
"""

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])


@contextmanager
def state() -> Iterator[dict[str, Any]]:
    path = FOLDER / "state.json"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = json.loads(path.read_text())
        yield found
        new = path.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(path)


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def fail(error: str, code: int = 1) -> None:
    sys.stderr.write(f"{error}\n")
    sys.exit(code)


def check(asked: argparse.Namespace) -> None:
    with state() as now:
        say(json.dumps({"default": now["clouds"]}, indent=2))


def gpus(asked: argparse.Namespace) -> None:
    with state() as now:
        if now["offline"]:
            say("Failed to fetch AWS catalog aws/vms.csv. Please check your internet.")
            trace = (
                "Traceback (most recent call last):\n  …\nsocket.gaierror: [Errno -2]"
            )
            fail(f"{trace}\nsky.exceptions.CloudError: requests error (Connection)")
        say(json.dumps(now["gpus"], indent=2))


def launch(asked: argparse.Namespace) -> None:
    with state() as now:
        task = Path(asked.task).read_text()
        now["launches"].append({"words": sys.argv[2:], "task": task})
        how, delay = now["on_launch"], now["launch_s"]
        if now["full"] and any(f"instance_type: {k}\n" in task for k in now["full"]):
            how = "no capacity"
        say(f"YAML to run: {asked.task}", f"Running on cluster: {asked.cluster}")
        if how != "no capacity":
            now["clusters"][asked.cluster] = "INIT"
    time.sleep(1000 if how == "hangs" else delay)
    if how == "no capacity":
        fail(
            "sky.exceptions.ResourcesUnavailableError: \x1b[31mFailed to provision all "
            "possible launchable resources.\x1b[0m Relax the task's resource "
            "requirements: 1x AWS(g6.xlarge)\nTo keep retrying until the cluster is "
            "up, use the `--retry-until-up` flag."
        )
    if how == "breaks":
        fail("sky.exceptions.CommandError: Failed to set up SkyPilot runtime.")
    with state() as now:
        if asked.cluster in now["clusters"]:
            now["clusters"][asked.cluster] = "UP"


def status(asked: argparse.Namespace) -> None:
    with state() as now:
        say("\x1b[2mFailed to connect to SkyPilot API server. Starting one.\x1b[0m")
        if now["garbage"]:
            say("[not JSON")
            return
        for name, is_now in now["clusters"].items():
            if is_now == "INIT" and now["on_launch"] == "hangs":
                now["clusters"][name] = "UP"  # at the next look
            if is_now == "UP" and now["ssh_config"]:
                add_alias(Path(now["ssh_config"]), name, now["ssh_port"])
        named = asked.names or list(now["clusters"])
        for name in named:
            if name not in now["clusters"]:
                say(f"Cluster(s) not found: \x1b[1m{name}\x1b[0m.")
        rows = [
            {
                "name": name,
                "status": is_now,
                "init_kind": now["init_kind"],
                "cloud": "AWS",
                "region": "us-east-1",
            }
            for name, is_now in now["clusters"].items()
            if name in named
        ]
        say(json.dumps(rows, indent=2))


def add_alias(path: Path, name: str, port: int) -> None:
    entry = f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n"
    if entry not in path.read_text():
        path.write_text(path.read_text() + entry)


def down(asked: argparse.Namespace) -> None:
    with state() as now:
        now["downs"] += 1
        if now["down_fails"]:
            fail("sky.exceptions.ApiServerConnectionError: Could not connect.")
        for name in asked.names:
            if now["clusters"].pop(name, None) is None:
                say(f"Cluster(s) not found: {name}.")


def main() -> None:
    top = argparse.ArgumentParser()
    words = top.add_subparsers(required=True)
    json_out = {"choices": ["json"], "required": True}
    each = words.add_parser("check")
    each.add_argument("--output", **json_out)  # type: ignore[arg-type]
    each.set_defaults(act=check)
    each = words.add_parser("gpus")
    each.add_argument("what", choices=["list"])
    each.add_argument("--output", **json_out)  # type: ignore[arg-type]
    each.set_defaults(act=gpus)
    each = words.add_parser("launch")
    each.add_argument("--cluster", required=True)
    for flag in ("--yes", "--detach-run", "--down"):
        each.add_argument(flag, action="store_true", required=True)
    each.add_argument("--idle-minutes-to-autostop", type=int, required=True)
    each.add_argument("task")
    each.set_defaults(act=launch)
    each = words.add_parser("status")
    each.add_argument("--refresh", action="store_true", required=True)
    each.add_argument("names", nargs="*")
    each.add_argument("--output", **json_out)  # type: ignore[arg-type]
    each.set_defaults(act=status)
    each = words.add_parser("down")
    each.add_argument("--yes", action="store_true", required=True)
    each.add_argument("names", nargs="+")
    each.set_defaults(act=down)
    asked = top.parse_args(sys.argv[2:])
    asked.act(asked)


if __name__ == "__main__":
    main()
