"""Secrets planted where people have them, and a search of all that was written."""

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

ENV = "Zq81xk-env-value-never-written"
"""Of no known form: known by its variable alone."""
DOTENV = "Qx83jdkLmn20Vbc8Zt1wPq"
"""In ``.env``, of a variable whose name says nothing."""
FORMED = "hf_" + "aB3dE6gH9k" * 4
PASSWORD = "Pl4nted-pw77"
URL = f"postgres://bob:{PASSWORD}@db.internal:5432/orders"
BEARER = "tok.9f8e7d6c5b4a39281706"
HEADER = f"Authorization: Bearer {BEARER}"
PEM_BODY = "MIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{PEM_BODY}\n-----END RSA PRIVATE KEY-----"
ALL = (ENV, DOTENV, FORMED, PASSWORD, BEARER, PEM_BODY)
"""What must be found nowhere."""
EVERYTHING = " ".join((ENV, DOTENV, FORMED, URL, HEADER, PEM))
VARIABLE, DOTENV_VARIABLE = "SHOP_API_KEY", "SHOP_THING"

PACK = '''
import logging
import os
import sys

from agentgym import Environment, Reward, Scenario, Task, tool
from agentgym.core.tools import tool_specs
from agentgym.errors import ToolError
from tests.security.planted import EVERYTHING


class Shop(Environment):
    def __init__(self, misdeed):
        self.misdeed = misdeed

    @tool
    def look(self, what: str) -> str:
        """Look at something.

        Args:
            what: At what.
        """
        print("printed:", EVERYTHING)
        print("told:", EVERYTHING, file=sys.stderr)
        logging.getLogger("shop").warning("logged %s", EVERYTHING)
        os.write(2, b"written: " + EVERYTHING.encode())
        os.write(2, b"\\n")
        if self.misdeed == "refuse":
            raise ToolError(f"refused: {EVERYTHING}")
        if self.misdeed == "crash":
            raise RuntimeError(f"crashed: {EVERYTHING}")
        return f"found: {EVERYTHING}"


class Planted(Scenario):
    """A shop whose tools show what they should not."""

    name = "planted"
    description = "Tools that tell secrets."
    difficulty = "beginner"
    estimated_time = "seconds"

    def system_prompt(self):
        return "You look."

    def tools(self):
        return tool_specs(Shop)

    def tasks(self, split, seed, count):
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="look",
                level=1,
                instruction=f"Look for {EVERYTHING}.",
                goal={"misdeed": ("none", "refuse", "crash", "reward")[number % 4]},
            )
            for number in range(count)
        ]

    def create_environment(self, task):
        if os.environ.get("PLANTED_BROKEN"):
            raise RuntimeError(f"broken: {EVERYTHING}")
        return Shop(task.goal["misdeed"])

    def calculate_reward(self, task, environment, trajectory):
        if task.goal["misdeed"] == "reward":
            raise RuntimeError(f"no reward: {EVERYTHING}")
        return Reward(float(trajectory.rollout_id.endswith("1")), True)

    def success_criteria(self):
        return {"success_rate": 0.9}
'''


_OWN = (".env", "tasks.jsonl")
"""Files that the user wrote."""


def leaks(*places: Path | str) -> set[str]:
    """Return where which secret is found: in files below folders, and in texts."""
    found: set[str] = set()
    for place in places:
        if isinstance(place, str):
            found |= {f"{secret} in the output" for secret in ALL if secret in place}
            continue
        assert place.exists()
        for path in place.rglob("*"):
            if path.is_file() and path.name not in _OWN:
                texts = [path.read_bytes(), *_unpacked(path)]
                found |= {
                    f"{secret} in {path}"
                    for secret in ALL
                    if any(secret.encode() in text for text in texts)
                }
    return found


def _unpacked(path: Path) -> Iterator[bytes]:
    """Yield what a store holds compressed, and what its token ids spell."""
    if path.suffix != ".db":
        return
    with closing(sqlite3.connect(path)) as database:
        for (data,) in database.execute("SELECT data FROM events"):
            if isinstance(data, bytes):
                text = zlib.decompress(data)
                yield text
                yield from _spelt(orjson.loads(text))


def _spelt(value: Any) -> Iterator[bytes]:
    """Yield lists of a scripted policy's tokens, each of which is a byte, as text."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _spelt(each)
    elif isinstance(value, list):
        if value and all(type(each) is int and 0 <= each < 256 for each in value):
            yield bytes(value)
        for each in value:
            yield from _spelt(each)
