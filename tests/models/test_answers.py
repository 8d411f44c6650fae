"""Answers that are kept in a file: which request is the same, and how many are kept."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agentgym.errors import UsageError
from agentgym.models.answers import AnswerCache

BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "look"}}],
    "temperature": 0,
    "max_tokens": 10,
    "seed": 1,
    "user": "r1",
}
PATH = "chat/completions"


def write(path: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(sql, values)


def key(path: Path, weights: str = "w", sent_to: str = PATH, **changes: Any) -> Any:
    cache = AnswerCache(path, weights)
    try:
        return cache.key(sent_to, BODY | changes)
    finally:
        cache.close()


def test_what_makes_a_request_another(tmp_path: Path) -> None:
    file = tmp_path / "answers"
    same = key(file)
    assert same == key(file, seed=2, user="r2", temperature=0.0)
    others = [
        key(file, "other weights"),
        key(file, sent_to="completions"),
        key(file, model="n"),
        key(file, messages=[{"role": "user", "content": "ho"}]),
        key(file, tools=[]),
        key(file, stream=True),
    ]
    assert None not in others
    assert len({same, *others}) == 7


@pytest.mark.parametrize("temperature", [None, 0.01, False])
def test_only_answers_at_temperature_0_are_kept(
    tmp_path: Path, temperature: Any
) -> None:
    cache = AnswerCache(tmp_path / "answers", "w")
    assert cache.key(PATH, BODY | {"temperature": temperature}) is None
    assert (cache.requests, cache.others) == (1, 1)
    assert "0 of 1 requests" in cache.summary
    assert "1 did not ask for temperature 0" in cache.summary
    cache.close()


def test_answers_outlive_the_process_that_asked(tmp_path: Path) -> None:
    for found in (None, b"answer"):
        cache = AnswerCache(tmp_path / "answers", "w")
        asked = cache.key(PATH, BODY)
        assert asked is not None
        assert cache.get(asked) == found
        cache.keep(asked, b"answer")
        assert cache.get(asked) == b"answer"
        cache.close()


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers", "w", most_bytes=40_000)
    keys = [b"%032d" % i for i in range(100)]
    noise = [Random(i).randbytes(1000) for i in range(100)]
    for name, answer in zip(keys, noise, strict=True):
        cache.keep(name, answer)
        assert cache.get(keys[0]) == noise[0]  # used all the time
    left = [name for name in keys if cache.get(name) is not None]
    assert keys[0] in left
    assert left[1:] == keys[-len(left) + 1 :]
    assert 10 < len(left) < 100
    assert (tmp_path / "answers").stat().st_size < 3 * 40_000
    cache.close()


async def test_the_same_request_waits_for_the_one_under_way(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path / "answers", "w")
    made: list[int] = []

    async def ask(number: int) -> bytes:
        async with cache.turn(b"key"):
            if (kept := cache.get(b"key")) is not None:
                return kept
            await asyncio.sleep(0)
            made.append(number)
            cache.keep(b"key", b"answer")
            return b"answer"

    assert await asyncio.gather(*map(ask, range(8))) == [b"answer"] * 8
    assert made == [0]
    assert cache.found == 7
    cache.close()


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("Not a database, by any means. " * 100)
    for path in (other, tmp_path / "no folder" / "answers", tmp_path):
        with pytest.raises(UsageError, match=f"cannot be kept in {path}"):
            AnswerCache(path, "w")
    assert other.read_text().startswith("Not a database")


def test_a_file_that_fails_meanwhile_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AnswerCache(tmp_path / "answers", "w")
    cache.keep(b"a", b"1")
    write(tmp_path / "answers", "DROP TABLE answers")
    assert cache.get(b"a") is None
    cache.keep(b"a", b"1")
    assert "all requests go to the model" in caplog.text
    cache.close()
