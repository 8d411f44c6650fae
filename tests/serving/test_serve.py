"""A served agent, asked by the clients that people use; ``agentgym serve``."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from openai import OpenAI

from agentgym import Trainer
from agentgym.serving.server import AgentServer
from tests.cli.conftest import Command, agentgym
from tests.serving.agents import shipped_agent
from tests.variants import first_of

__all__ = ["agentgym"]

KEY = "a key"
TOLD: list[Any] = [{"role": "user", "content": "Which files are there?"}]
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
LIST_FILES: Any = {
    "type": "function",
    "function": {
        "name": "list_files",
        "description": "List the files.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def schema_of(fields: dict[str, Any]) -> Any:
    """Return a schema with these fields, as OpenAI's clients send it."""
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "json_schema", "json_schema": {"name": "Answer", "schema": schema}}


SLOW = {"max_tokens": 900, "temperature": 3.0}
"""Such answers are noise, and take their time."""


class Process:
    """``agentgym serve`` of the shipped weights as ``coding@1``."""

    def __init__(self, *words: str, home: str) -> None:
        command = [sys.executable, "-m", "agentgym", "serve", "coding", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *words],
            env={**os.environ, "AGENTGYM_HOME": home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = ""
        for line in self.process.stdout:
            if line.strip().startswith("API key"):
                break
            if "base URL" in line:
                self.url = line.split()[-1]

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, told


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(home))
        shipped_agent(home / "made").save("coding")
    return str(home)


@pytest.fixture(scope="module")
def server(home: str) -> Iterator[AgentServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", home)
        running = Trainer().deploy("coding", api_key=KEY)
    with running:
        yield running


@pytest.fixture
def client(server: AgentServer) -> OpenAI:
    return client_of(server)


def client_of(server: AgentServer | Process, key: str = KEY) -> OpenAI:
    return OpenAI(base_url=server.url, api_key=key, max_retries=0)


def test_openai_lists_the_model_under_its_names(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["coding@1", "coding"]
    assert client.models.retrieve("coding").id == "coding"


def test_openai_is_answered_with_a_tool_call(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="coding", messages=TOLD, tools=[LIST_FILES], temperature=0, n=1
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, call.function.arguments) == ("list_files", "{}")
    assert (answer.model, answer.choices[0].finish_reason) == ("coding", "tool_calls")
    assert answer.usage is not None
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 0
    assert "prompt_token_ids" not in (answer.model_extra or {})


@pytest.mark.parametrize("tools", [[], [LIST_FILES]], ids=["text", "tool call"])
def test_openai_streams_what_it_would_be_told_at_once(
    client: OpenAI, tools: list[Any]
) -> None:
    asked: dict[str, Any] = {"model": "coding", "messages": HELLO, "temperature": 0}
    if tools:
        asked |= {"messages": TOLD, "tools": tools}
    whole = client.chat.completions.create(**asked)
    with client.chat.completions.stream(
        **asked, stream_options={"include_usage": True}
    ) as events:
        streamed = events.get_final_completion()
    assert streamed.usage == whole.usage
    one, other = (each.choices[0] for each in (whole, streamed))
    assert (one.message.content or "") == (other.message.content or "")
    assert bool(other.message.tool_calls) == bool(tools) == bool(one.message.tool_calls)
    assert one.finish_reason == other.finish_reason


def test_what_is_asked_of_sampling_is_done(client: OpenAI) -> None:
    def said(**asked: Any) -> tuple[str | None, str]:
        answer = client.chat.completions.create(
            model="coding", **{"messages": HELLO, "max_tokens": 12, **asked}
        )
        return answer.choices[0].message.content, answer.choices[0].finish_reason

    noise = said(temperature=3.0, seed=5)
    assert noise == said(temperature=3.0, seed=5) != said(temperature=3.0, seed=6)
    assert noise[1] == "length"
    thanks = {"messages": [{"role": "user", "content": "Thanks"}], "temperature": 0}
    text, _ = said(**thanks, max_tokens=60)
    assert text is not None
    word = text.split()[2]
    assert said(**thanks, stop=word) == (text[: text.index(word)], "stop")


def test_an_answer_is_held_to_a_schema(client: OpenAI) -> None:
    route = {"enum": ["billing", "tech"]}
    answer = client.chat.completions.create(
        model="coding",
        messages=HELLO,
        response_format=schema_of({"route": route, "sure": {"type": "boolean"}}),
        temperature=1.0,
    )
    said = json.loads(answer.choices[0].message.content or "")
    assert set(said) == {"route", "sure"}
    assert said["route"] in ("billing", "tech")
    assert isinstance(said["sure"], bool)
    assert "grammar" not in answer.to_dict()


@pytest.mark.parametrize("parallel", [True, False])
def test_a_call_that_is_required_is_made(client: OpenAI, parallel: bool) -> None:
    answer = client.chat.completions.create(
        model="coding",
        messages=HELLO,
        tools=[LIST_FILES],
        tool_choice="required",
        parallel_tool_calls=parallel,
        temperature=0.0,
    )
    made = answer.choices[0].message.tool_calls or []
    assert {call.function.name for call in made if call.type == "function"} == {
        "list_files"
    }
    assert parallel or len(made) == 1


@pytest.mark.parametrize(
    ("asked", "status", "code"),
    [
        ({"model": "gpt"}, 404, "model_not_found"),
        (
            {"messages": [{"role": "user", "content": "hi " * 2000}]},
            400,
            "context_length_exceeded",
        ),
        ({"n": 2}, 400, "unsupported_parameter"),
        ({"tool_choice": "nobody"}, 400, "invalid_value"),
        ({"response_format": {"type": "json_schema"}}, 400, "invalid_value"),
        (
            {"response_format": schema_of({"x": {"not": {"type": "string"}}})},
            400,
            "unsupported_schema",
        ),
        ({"temperature": -1}, 400, "invalid_value"),
        ({"seed": "x"}, 400, "invalid_value"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{}]}]},
            400,
            "invalid_messages",
        ),
        ({"tools": [{"type": "function"}]}, 400, "invalid_tools"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_it_cannot_do_is_refused(
    client: OpenAI, asked: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    body = {"model": "coding", "messages": TOLD, **asked}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**body, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)


@pytest.mark.parametrize("key", ["other", KEY + "x"])
def test_a_wrong_key_is_refused(server: AgentServer, key: str) -> None:
    with pytest.raises(openai.AuthenticationError, match="Invalid or missing API key"):
        client_of(server, key).models.list()


@pytest.mark.parametrize("body", [b"{", b"[]"])
def test_bad_json_is_an_error_object(server: AgentServer, body: bytes) -> None:
    told = httpx.post(
        f"{server.url}/chat/completions",
        content=body,
        headers={"Authorization": f"Bearer {KEY}"},
    )
    assert (told.status_code, told.json()["error"]["code"]) == (400, "invalid_json")


def test_another_path_says_what_there_is(server: AgentServer) -> None:
    head = {"Authorization": f"Bearer {KEY}"}
    told = httpx.post(f"{server.url}/completions", json={}, headers=head)
    assert told.status_code == 404
    assert "POST /v1/chat/completions" in told.json()["error"]["message"]
    health = httpx.get(f"{server.url.removesuffix('/v1')}/healthz")
    assert health.json() == {"status": "ok"}


def test_langchain_chats_and_calls_tools(server: AgentServer) -> None:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="coding", base_url=server.url, api_key=lambda: KEY, temperature=0
    )
    assert model.invoke("Thanks").text
    assert "".join(chunk.text for chunk in model.stream("Thanks"))
    called = model.bind_tools([LIST_FILES]).invoke("Which files are there?")
    assert [call["name"] for call in called.tool_calls] == ["list_files"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), first_of([(signal.SIGTERM, 143), (signal.SIGINT, 130)])
)
def test_an_answer_under_way_is_finished(home: str, number: int, code: int) -> None:
    server = Process(home=home)
    stream = client_of(server, "any").chat.completions.create(
        model="coding", messages=TOLD, stream=True, **(SLOW | {"max_tokens": 300})
    )  # on a busy machine more would not end within the grace
    assert next(stream)
    ended, told = server.end(number)
    assert (ended, told) == (code, "coding@1 is no longer served.\n")
    assert [c.choices[0].finish_reason for c in stream][-1] in ("length", "stop")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constrain", "holds"), first_of([("calls", True), ("none", False)])
)
def test_calls_follow_the_schemas_if_serve_is_asked_for_that(
    home: str, constrain: str, holds: bool
) -> None:
    server = Process("--constrain", constrain, home=home)
    fields = {"room": {"enum": ["blue", "red"]}, "beds": {"type": "integer"}}
    schema: dict[str, object] = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
    }
    answers = [
        client_of(server, "any").chat.completions.create(
            model="coding",
            messages=[{"role": "user", "content": f"Book the room {seed}."}],
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": "book_room",
                        "description": "Book it.",
                        "parameters": schema,
                    },
                }
            ],
            max_tokens=100,
            temperature=2.0,
            seed=seed,
        )
        for seed in range(24)
    ]
    server.end(signal.SIGTERM)
    calls = [
        call
        for answer in answers
        for call in answer.choices[0].message.tool_calls or ()
        if answer.choices[0].finish_reason != "length"
    ]
    assert calls
    assert all(is_by(schema, call.function) for call in calls) is holds


def is_by(schema: dict[str, Any], called: Any) -> bool:
    """Say whether a call is one of the function with this schema."""
    try:
        given = json.loads(called.arguments)
    except ValueError:
        return False
    is_valid = jsonschema.Draft202012Validator(schema).is_valid(given)
    return called.name == "book_room" and is_valid


def test_a_taken_port_is_told(agentgym: Command, tmp_path: Path) -> None:
    agent = shipped_agent(tmp_path / "made")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = agentgym("serve", str(agent.path), "--port", port)
    assert ended.code == 2
    assert ended.err == (
        f"Error: Port {port} of 127.0.0.1 is taken by another program: give another "
        "with --port, or 0 for a free one.\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "could use the model"),
        (["--host", "nothing.invalid", "--api-key", "k"], "cannot be listened on"),
        (["--port", "70000"], "70000 is not a port"),
        (["--api-key", "schlüssel"], "characters that no HTTP header can hold"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_address_that_cannot_be_is_refused(
    agentgym: Command, tmp_path: Path, words: list[str], told: str
) -> None:
    agent = shipped_agent(tmp_path / "made")
    ended = agentgym("serve", str(agent.path), *words)
    assert ended.code == 2
    assert told in ended.err
    assert ended.err.count("\n") == 1


def test_files_that_were_altered_are_not_served(
    agentgym: Command, tmp_path: Path
) -> None:
    agent = shipped_agent(tmp_path / "altered")
    weights = agent.model_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    ended = agentgym("serve", str(agent.path), "--port", "0")
    assert ended.code == 1
    assert f"{weights} is not as it was saved" in ended.err
