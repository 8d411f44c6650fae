"""Agents of every framework on OpenAI's client: the part that is alike in all."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.tools import same_arguments
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply
from agentgym.errors import MissingExtraError, RolloutError, UnsupportedError
from agentgym.integrations import registry
from agentgym.integrations.agent_import import load_agent
from agentgym.integrations.registry import FRAMEWORKS, is_installed
from tests.integrations.authored_runs import LIST, OK, acting, run, run_all, told_last
from tests.integrations.test_authored import ELSEWHERE
from tests.rollout.sessions import requests
from tests.variants import first_of

ADK = pytest.param(
    "adk",
    marks=pytest.mark.skipif(not is_installed("google.adk"), reason=ELSEWHERE),
)
EACH = ("agent_framework", "llamaindex", "openai_agents", "pydantic_ai", "strands")
SEEN = [("list_files", "ok", True)]

slow = pytest.mark.slow  # starts workers that import the framework


WATCHED = """
import sys
from agentgym.integrations.redirect import watch
from agentgym.integrations.registry import FRAMEWORKS
watch()
print(FRAMEWORKS.get(sys.argv[1]).framework)
"""


def at(framework: str, name: str) -> str:
    """Return the reference of an agent, or of a function, of the author's."""
    return f"tests.plugins.{framework}.authored:{name}"


@pytest.mark.parametrize(
    ("framework", "no_model"),
    [
        ("agent_framework", "A str is not a chat client"),
        ("llamaindex", "A str is not an LLM"),
        ("openai_agents", "A str is not a model"),
        ("pydantic_ai", "A str is not a model"),
        ("strands", "A str is not a model"),
    ],
)
def test_what_is_no_agent_is_refused(framework: str, no_model: str) -> None:
    clerk, adapter = load_agent(at(framework, "clerk")), FRAMEWORKS.get(framework)
    nothing = sys.modules[at(framework, "").rstrip(":")].nothing
    with pytest.raises(UnsupportedError, match="gave a dict, not an agent. Return an"):
        adapter.require_agent(nothing, "app:nothing")
    with pytest.raises(UnsupportedError, match=no_model):
        adapter.with_model(clerk, "gpt-4o")


@pytest.mark.parametrize("framework", EACH)
def test_defaults_that_a_json_schema_cannot_show_are_filled_in(framework: str) -> None:
    found = load_agent(f"tests.integrations.nested_defaults:{framework}")
    [tool] = FRAMEWORKS.get(framework).tools_of(found)
    place = {"x": 3, "style": {"colour": "black", "tags": []}}
    short = {"shape": "circle", "at": {"x": 3}}
    assert same_arguments(tool.spec, short, {"shape": "circle", "at": place})
    place["x"] = "3"
    assert same_arguments(tool.spec, short, {"shape": "circle", "at": place})
    for other in ({"x": 4}, {"x": 3, "style": {"tags": ["new"]}}):
        assert not same_arguments(tool.spec, short, {"shape": "circle", "at": other})


@pytest.mark.parametrize("framework", EACH)
def test_a_missing_extra_is_named(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = FRAMEWORKS.get(framework)
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=framework.replace("_", "-")):
        adapter.check()


@slow
@pytest.mark.parametrize(
    ("framework", "agent"),
    [
        *((framework, "clerk") for framework in EACH),
        ("agent_framework", "counted"),
        pytest.param("adk", "clerk", marks=ADK.marks),
    ],
)
def test_episodes_at_once_share_nothing(
    tmp_path: Path, framework: str, agent: str
) -> None:
    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(str(request.messages[1]["content"]))
        return LIST

    done = run_all(tmp_path, framework, agent, respond, 32, workers=1)
    for request, found in zip(requests(32), done, strict=True):
        assert found.model_calls[-1].content == request.task.instruction
        assert acting(found) == SEEN


@slow
@pytest.mark.parametrize("framework", [*EACH, ADK])
def test_openais_own_client_in_a_tool_is_routed_too(
    tmp_path: Path, framework: str
) -> None:
    ask = Reply(calls=[("ask_openai", {"question": "Why?"})])
    found = run(tmp_path, framework, "author", ask, Reply("So."), OK)
    assert found.model_calls[1].messages == [{"role": "user", "content": "Why?"}]
    assert told_last(found) == "So."


@slow
@pytest.mark.parametrize(
    ("framework", "agent", "tool"),
    [
        *((framework, "clerk", "shout") for framework in EACH),
        ("llamaindex", "named", "my_shout"),
        ("pydantic_ai", "named", "my_shout"),
    ],
)
def test_tools_that_the_episode_does_not_have_run_as_they_are(
    tmp_path: Path, framework: str, agent: str, tool: str
) -> None:
    shouting = Reply(calls=[(tool, {"word": "hey"})])
    assert told_last(run(tmp_path, framework, agent, shouting, OK)) == "HEY"


@slow
@pytest.mark.parametrize(
    ("framework", "agent", "context"),
    [
        ("agent_framework", "greeting", None),
        ("llamaindex", "greeting", None),
        ("strands", "greeting", None),
        ("openai_agents", "knowing", "user"),
        ("pydantic_ai", "knowing", "deps"),
    ],
)
def test_a_live_tool_runs_in_its_place_with_its_context(
    tmp_path: Path, framework: str, agent: str, context: str | None
) -> None:
    greeting = Reply(calls=[("greet", {"word": "Hi"})])
    given = {"agent.context": at(framework, context)} if context else {}
    found = run(
        tmp_path,
        framework,
        agent,
        greeting,
        **{"agent.allow_tools": ("greet",)},
        **given,
    )
    whom = requests(1)[0].task.id if context else "you"
    assert told_last(found) == f"Hi, {whom}!"
    [call] = found.get_tool_calls()
    assert (call.name, call.outcome) == ("greet", "ok")


@slow
@pytest.mark.parametrize(
    ("framework", "agent"),
    [
        ("agent_framework", "chain"),
        ("autogen", "clerk"),
        ("llamaindex", "clerk"),
        ("openai_agents", "clerk"),
        ("pydantic_ai", "clerk"),
        ("strands", "clerk"),
        pytest.param("adk", "clerk", marks=ADK.marks),
    ],
)
def test_inputs_are_its_first_message(
    tmp_path: Path, framework: str, agent: str
) -> None:
    found = run(
        tmp_path, framework, agent, OK, **{"agent.inputs": at(framework, "first")}
    )
    message = found.model_calls[0].messages[-1]
    assert message["content"] == f"Please: {requests(1)[0].task.id}"


@slow
@pytest.mark.parametrize(
    "framework", ["autogen", "llamaindex", "openai_agents", "pydantic_ai", "strands"]
)
def test_inputs_of_another_kind_drop_the_episode(
    tmp_path: Path, framework: str
) -> None:
    lost = run(
        tmp_path, framework, "clerk", OK, **{"agent.inputs": at(framework, "wrongly")}
    )
    assert lost.status is RolloutStatus.DROPPED
    assert "gave an int" in str(lost.reason)


@slow
@pytest.mark.parametrize("framework", [*EACH, "smolagents"])
@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("breaking", "the agent is broken"),
        ("exiting", r"sys\.exit\(3\)|exit code 3|SystemExit: 3"),
        ("deaf", "ended without calling the model"),
    ],
)
def test_what_goes_wrong_drops_the_episode_and_says_why(
    tmp_path: Path, framework: str, agent: str, reason: str
) -> None:
    found = run(tmp_path, framework, agent)
    assert found.status is RolloutStatus.DROPPED
    assert re.search(reason, str(found.reason)), found.reason


@slow
@pytest.mark.parametrize("framework", [*EACH, "autogen", "smolagents"])
@pytest.mark.parametrize(
    ("agent", "wording"),
    [
        ("nothing", "gave a dict, not an agent"),
        ("gone", "has no 'gone'"),
        ("clerk", "no configurable keys|no runtime context"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, framework: str, agent: str, wording: str
) -> None:
    settings: dict[str, Any] = {}
    if agent == "clerk":
        is_plain = framework not in ("openai_agents", "pydantic_ai")
        context = {"agent.context": at(framework, "first")}
        settings = context if is_plain else {"agent.configurable": {"a": 1}}
    with pytest.raises(RolloutError, match=wording):
        run(tmp_path, framework, agent, **settings)


@pytest.mark.parametrize("framework", first_of(["smolagents", "strands", "llamaindex"]))
def test_a_framework_is_patched_whatever_imports_it_first(framework: str) -> None:
    words = [sys.executable, "-c", WATCHED, framework]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "Framework object" in made.stdout, made.stderr
