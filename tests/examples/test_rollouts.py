"""The examples of rollouts run as they stand and print what they should."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.rollout.scripted_llm import calling
from tests.rollout.stub_server import StubServer, completion
from tests.some import some

FOLDER = Path(__file__).parents[2] / "examples" / "rollouts"


async def respond(_: web.Request, body: dict[str, Any]) -> web.Response:
    """Be a model that knows what the examples ask."""
    first = body["messages"][1]["content"]
    last = body["messages"][-1]
    message: dict[str, Any]
    if last["content"] == "Can you improve on that?":
        message = {"role": "assistant", "content": "Rayleigh scattering."}
    elif first.startswith("What is"):
        expression = first.removeprefix("What is ").rstrip("?")
        message = calling("calculator", expression=expression)
        if last["role"] == "tool":
            message = {"role": "assistant", "content": f"It is {last['content']}."}
    elif first.startswith("How warm"):
        called = sum(m["role"] == "tool" for m in body["messages"])
        message = [
            calling("temperature", "a", city="Bonn"),
            calling("to_fahrenheit", "b", celsius=21.5),
            {"role": "assistant", "content": "It is 70.7 F."},
        ][called]
    else:
        message = {"role": "assistant", "content": "Because of the air."}
    return web.json_response(completion(message=message))


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with StubServer(respond) as server:
        yield f"{server.endpoint}#scripted"


def printed(name: str, *words: str) -> list[str]:
    """Run an example and return the lines that it printed."""
    ended = subprocess.run(
        [sys.executable, FOLDER / name, *words], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_every_example_has_a_test_and_a_line_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text()
    here = Path(__file__).read_text()
    for path in some(FOLDER.glob("*.py")):
        assert f"`{path.name}`" in readme
        assert f'printed("{path.name}"' in here


@pytest.mark.slow
def test_async_function() -> None:
    assert printed("async_function.py") == [
        "What is the capital of France? Paris",
        "What is the capital of Japan? Tokyo",
        "What is the capital of Mars? I do not know.",
    ]


@pytest.mark.slow
def test_endpoint(model: str) -> None:
    ended = subprocess.run(
        [sys.executable, FOLDER / "endpoint.py"], capture_output=True, text=True
    )
    assert (ended.returncode, "usage" in ended.stderr) == (2, True)
    assert printed("endpoint.py", model) == [
        "succeeded It is 42. [({'expression': '6 * 7'}, '42')]",
        "succeeded It is 1024. [({'expression': '2 ** 10'}, '1024')]",
        "12 prompt tokens",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_scripted", [False, True])
def test_own_tool(model: str, is_scripted: bool) -> None:
    words = [] if is_scripted else [model]
    assert printed("own_tool.py", *words) == [
        "temperature {'city': 'Bonn'} -> 21.5",
        "to_fahrenheit {'celsius': 21.5} -> 70.7",
        "It is 70.7 F.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("is_scripted", [False, True])
def test_own_agent(model: str, is_scripted: bool) -> None:
    words = [] if is_scripted else [model]
    assert printed("own_agent.py", *words) == [
        "- Because of the air.",
        "- Rayleigh scattering.",
        "Answer: Rayleigh scattering.",
    ]


@pytest.mark.slow
def test_partial_failure(tmp_path: Path) -> None:
    counts, *reasons, sums = printed("partial_failure.py", str(tmp_path / "out.jsonl"))
    assert counts == "7 succeeded, 3 dropped"
    assert [reason.split(":")[0] for reason in reasons] == [
        "- model",
        "- timeout",
        "- garbage reply",
    ]
    assert sums == "saved: 10"


@pytest.mark.slow
def test_load_and_summarize(tmp_path: Path) -> None:
    assert printed("load_and_summarize.py", str(tmp_path / "out.jsonl")) == [
        "2 model calls, 1 tool calls",
        "3 rollouts, mean reward 1.0",
    ]
