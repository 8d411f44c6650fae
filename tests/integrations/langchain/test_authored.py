"""LangGraph agents as people write them: each works, or is refused before training."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import AgentGymError
from agentgym.integrations.agent_import import build, load_agent
from agentgym.integrations.langchain import LangChainAdapter
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed
from agentgym.scenarios.tool_tasks.starter import starter
from tests.integrations.exported import chat_model
from tests.rollout.sessions import requests, session

HERE = "tests.integrations.langchain.live_agents"
TUTORIAL = "tests.integrations.langchain.tutorial_agents"
load_agent(f"{HERE}:plain")  # it makes models, which want a key
live = import_module(HERE)


@pytest.fixture
def tried(tmp_path: Path) -> Callable[..., AgentReport]:
    """Return a function that tries an agent of the module on a tasks file."""
    tasks = tmp_path / "desk.jsonl"
    held = (live.find_book, live.lend_book)
    tools = [t for each in held for t in FRAMEWORKS.get("langchain").tools_of(each)]
    tasks.write_text(starter(tools))

    def trial(name: str, **settings: Any) -> AgentReport:
        agent = name if ":" in name else f"{HERE}:{name}"
        config = TrainingConfig.create(scenario=str(tasks), agent=agent, **settings)
        return probed(located(config))

    return trial


WORKS = {
    "create_agent": "plain",
    "synchronous nodes": "sync_nodes",
    "asynchronous nodes": "async_nodes",
    "asyncio.run in a node": "loops_in_nodes",
    "a model made in a node, init_chat_model": "made_in_node",
    "answers put together from a stream": "streaming",
    "a chain of a prompt and a model": "chained",
    "tools that OpenAI's servers run, left out": "hosting",
    "OpenAI's own client": "by_openai",
    "nodes that are objects": "object_node",
    "tools called in a node of one's own": "own_tool_node",
    "a checkpointer, a store": "remembering",
    "middleware": "limited",
    "response_format by a tool, tool_choice": "by_tool",
    "with_structured_output by a tool": "routed",
    "response_format by the provider": "by_provider",
    "with_structured_output by the provider": "routed_by_provider",
    "human-in-the-loop approval": "approving",
    "human-in-the-loop approval, call by call": f"{TUTORIAL}:per_call",
    "human-in-the-loop without approval": f"{TUTORIAL}:never_approving",
    "breakpoints, interrupt_before": f"{TUTORIAL}:stopping_before",
    "breakpoints, interrupt_after": f"{TUTORIAL}:stopping_after",
    "interrupt() in a node": "waiting",
    "interrupt() in tools": f"{TUTORIAL}:asking_in_tools",
    "a ToolNode with fallbacks": f"{TUTORIAL}:with_fallbacks",
    "one call a message": f"{TUTORIAL}:one_at_a_time",
    "a factory without parameters": "make_graph",
    "an asynchronous factory": "make_graph_async",
    "a factory that takes the model": "make_with_model",
}
"""What the documentation says works, by the agent that shows it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS.values())
def test_it_trains_as_it_is(tried: Callable[..., AgentReport], name: str) -> None:
    report = tried(name)
    assert report.problems == []
    assert set(report.bound) == {"find_book", "lend_book"}
    assert report.framework == "langchain"
    assert report.model_calls is not None
    assert report.model_calls > 1
    assert live.BOOKS == {"B1": "shelf"}


@pytest.mark.slow
def test_a_tool_that_comes_after_the_limit_of_turns_is_named_with_the_limit(
    tmp_path: Path,
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    lines = (
        f'{{"instruction": "Find {name}.", "expect": [{{"tool": "find_book"}}]}}\n'
        for name in "ABCDEFGHIJKLMN"
    )
    tasks.write_text('{"max_turns": 2}\n' + "".join(lines))
    agent = f"{HERE}:long_winded"
    config = TrainingConfig.create(scenario=str(tasks), agent=agent)
    said = " ".join(probed(located(config)).concerns)
    assert "The tasks name find_book" in said
    assert 'raises it: {"max_turns": 20}.' in said


@pytest.mark.slow
def test_no_proxy_stands_between_an_agents_client_and_the_gateway(
    tried: Callable[..., AgentReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert tried("by_openai").problems == []


@pytest.mark.slow
def test_what_a_graph_needs_of_a_task_is_given(
    tried: Callable[..., AgentReport],
) -> None:
    assert tried("in_context", **{"agent.context": f"{HERE}:desk_of"}).problems == []
    assert tried("keyed", **{"agent.inputs": f"{HERE}:keys_of"}).problems == []
    with pytest.raises(
        AgentGymError, match=r"Desk, which cannot be made of .*--context"
    ):
        tried("in_context")
    [problem] = tried("keyed").problems
    assert "KeyError" in problem
    assert "--inputs module:function" in problem


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "passes"), [("supervisor", "ask_lender"), ("swarm", "transfer_to_lender")]
)
def test_agents_below_and_beside_are_reached(
    tried: Callable[..., AgentReport], name: str, passes: str
) -> None:
    report = tried(name)
    assert report.problems == []
    assert set(report.bound) == {"find_book", "lend_book"}
    assert report.own == {passes: "runs: it passes control on"}
    assert {"lender"} < {role.name for role in report.roles}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "said", "told"),
    [
        ("routed", Reply("To the assistant."), "a call was asked for, and none was"),
        ("routed", Reply(calls=[("Route", {"to": "sea"})]), "Error: 'sea' is not one"),
        ("routed_by_any_object", Reply(calls=[("json", {"at": 1})]), '{"at": 1}'),
    ],
)
def test_what_is_not_in_the_form_asked_for_is_the_policys_failure(
    tmp_path: Path, agent: str, said: Reply, told: str
) -> None:
    settings = {"scenario": "coding", "agent": f"{HERE}:{agent}"}
    with session(tmp_path, ScriptedPolicy(lambda _: said), **settings) as opened:
        [made] = opened.run(requests(1), lambda _: None)
    assert made.reason is not None
    assert made.reason.kind == "wrong form"
    assert told in made.reason.detail
    assert made.reward is not None
    assert len(made.model_calls) == 1


@pytest.mark.slow
def test_another_error_after_a_json_object_is_not_the_policys_failure(
    tmp_path: Path,
) -> None:
    given = Reply(calls=[("json", {"at": 1})])
    settings = {"scenario": "coding", "agent": f"{HERE}:closed_after_any_object"}
    with session(tmp_path, ScriptedPolicy(lambda _: given), **settings) as opened:
        [made] = opened.run(requests(1), lambda _: None)
    assert made.status is RolloutStatus.DROPPED
    assert made.reward is None
    assert "the desk's database is gone" in str(made.reason)


@pytest.mark.slow
def test_a_crash_of_the_agents_code_after_an_answer_is_the_models_failure(
    tried: Callable[..., AgentReport], tmp_path: Path
) -> None:
    def respond(request: ChatRequest) -> Reply:
        is_shelf = [each["function"]["name"] for each in request.tools] == ["Shelf"]
        return Reply(calls=[("Shelf", {"number": 7})]) if is_shelf else Reply("Hm.")

    report = tried("shelved")
    assert report.problems == []
    [told] = [each for each in report.concerns if "own code crashed" in each]
    assert "IndexError: list index out of range" in told
    settings = {"scenario": "coding", "agent": f"{HERE}:shelved"}
    with session(tmp_path, ScriptedPolicy(respond), **settings) as opened:
        [made] = opened.run(requests(1), lambda _: None)
    assert str(made.reason).startswith("agent crashed: IndexError")
    assert (made.status, made.attempt) == (RolloutStatus.FAILED, 0)
    assert made.reward is not None


@pytest.mark.slow
def test_each_episode_has_threads_however_many_run_at_once(tmp_path: Path) -> None:
    said = ScriptedPolicy(lambda _: Reply("Hm."))
    with session(tmp_path, said, scenario="coding", agent=f"{HERE}:meeting") as opened:
        made = opened.run(requests(live.MEETING), lambda _: None)
    assert {str(each.reason) for each in made} == {"goal not reached"}


@pytest.mark.slow
def test_a_node_that_asks_for_any_json_object_is_trained(
    tried: Callable[..., AgentReport], tmp_path: Path
) -> None:
    def respond(request: ChatRequest) -> Reply:
        is_asked = request.tools[0]["function"]["name"] == "json"
        return (
            Reply(calls=[("json", {"to": "assistant"})]) if is_asked else Reply("Hm.")
        )

    report = tried("routed_by_any_object")
    assert report.problems == []
    assert any("any JSON object" in each for each in report.concerns)
    settings = {"scenario": "coding", "agent": f"{HERE}:routed_by_any_object"}
    with session(tmp_path, ScriptedPolicy(respond), **settings) as opened:
        [made] = opened.run(requests(1), lambda _: None)
    assert made.reason is None or made.reason.kind == "goal not reached"
    assert [call.content for call in made.model_calls][1:] == ["Hm."]


REFUSED = {
    "tools called as plain functions": ("past_training", r"own code, past training"),
    "an agent that never asks its model": ("silent", r"without calling the model"),
    "an agent that calls sys.exit": ("exiting", r"called sys\.exit\(3\)"),
    "an agent that raises": ("raising", r"the desk burnt down"),
}
"""What the documentation says is refused, by the agent, and what is said of it."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "told"), REFUSED.values())
def test_what_cannot_be_trained_is_named_in_a_trial(
    tried: Callable[..., AgentReport], name: str, told: str
) -> None:
    [problem] = tried(name).problems
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(problem)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["threaded", "pooled"])
def test_threads_without_the_episode_are_named(
    tried: Callable[..., AgentReport], name: str
) -> None:
    [problem] = tried(name).problems
    assert "threads that the agent starts itself do not carry it" in problem
    assert "ContextThreadPoolExecutor" in problem
    assert "contextvars.copy_context().run" in problem


@pytest.mark.slow
def test_where_a_graph_waits_is_noted(tried: Callable[..., AgentReport]) -> None:
    for name in ("waiting", f"{TUTORIAL}:never_approving_batched"):
        report = tried(name)
        assert report.problems == []
        assert any("else with 'yes'" in each for each in report.concerns)


@pytest.mark.slow
def test_a_call_that_a_node_replaces_is_followed(
    tried: Callable[..., AgentReport],
) -> None:
    report = tried(f"{TUTORIAL}:rechecking")
    assert report.problems == []
    assert (report.bound, report.missing) == (["lend_book"], ["find_book"])
    assert any("Calls of lend_book that the agent's" in c for c in report.concerns)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("builder", "a StateGraph that is not compiled"),
        ("BOOKS", "gave a dict, which is not an agent of"),
        ("make_of_nobody", f"^{HERE}:make_of_nobody requires 'database', which"),
        ("make_nothing", "failed to make the agent: OSError: no database"),
        ("holder", "its graph is an agent. .*: agent = holder.graph"),
        ("Holder", r"its graph is an agent. .*: agent = Holder\(\).graph"),
        ("nothing", "has no 'nothing'"),
        ("make_none", f"^{HERE}:make_none gave None, which is not an agent"),
        ("bound", f"^{HERE}:bound gave a .*Binding, not a compiled graph"),
    ],
)
def test_what_is_no_agent_is_refused(name: str, told: str) -> None:
    with pytest.raises(AgentGymError, match=told):
        adapter, made = build(f"{HERE}:{name}")
        adapter.require_agent(made, f"{HERE}:{name}")


@pytest.mark.slow
def test_prompts_tools_and_models_are_found(tried: Callable[..., AgentReport]) -> None:
    [role] = tried("plain").roles
    assert (role.name, role.prompt) == ("desk", live.PROMPT)
    assert role.model == "ChatOpenAI gpt-4o-mini"
    assert [tool["function"]["name"] for tool in role.tools] == [
        "find_book",
        "lend_book",
    ]
    assert "InMemorySaver is not written" in " ".join(tried("remembering").concerns)


def test_the_import_of_a_module_ends_where_it_runs_the_agent(
    tried: Callable[..., AgentReport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = f"from {HERE} import plain as graph\n"
    (tmp_path / "runs_it.py").write_text(
        f"{text}graph.invoke({{'messages': [('user', 'Hello')]}})\nlater = graph\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        AgentGymError, match=r"runs_it runs the agent as it is imported"
    ):
        located(TrainingConfig.create(agent="runs_it:later"))
    assert located(TrainingConfig.create(agent="runs_it:graph")).agent.reference
    assert "runs_it runs the agent: its import ends there" in caplog.text


@pytest.mark.slow
def test_a_module_may_run_a_loop_as_it_is_imported(
    tried: Callable[..., AgentReport], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loops.py").write_text(
        f"import asyncio\nfrom {HERE} import plain as graph\n"
        "asyncio.run(asyncio.sleep(0))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    desk = str(tmp_path / "desk.jsonl")
    config = TrainingConfig.create(scenario=desk, agent="loops:graph")
    assert not probed(located(config)).problems


def test_an_empty_key_of_a_provider_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    made = "from langchain_openai import ChatOpenAI\nmodel = ChatOpenAI(model='m')\n"
    (tmp_path / "with_empty_key.py").write_text(made)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_agent("with_empty_key:model").model_name == "m"


def test_tools_memory_and_thread_of_a_graph_work_with_another_model() -> None:
    said = iter([Reply(calls=[("find_book", {"title": "B1"})]), Reply("Here.")])
    model = chat_model(lambda request: next(said))
    copy = LangChainAdapter().with_model(live.remembering, model)
    config = {"configurable": {"thread_id": "1"}}
    state = copy.invoke({"messages": [("user", "B1?")]}, config)
    texts = [message.text for message in state["messages"]]
    assert texts == ["B1?", "", "shelf", "Here."]
    assert len(copy.get_state(config).values["messages"]) == 4


INBOX = "tests.integrations.langchain.inbox_agents"


@pytest.mark.slow
def test_an_interrupt_that_wants_more_than_yes_is_answered_by_the_users_function(
    tried: Callable[..., AgentReport],
) -> None:
    [problem] = tried(f"{INBOX}:by_decision").problems
    assert "was answered 'yes'" in problem
    assert "--on-interrupt module:function" in problem
    report = tried(f"{INBOX}:by_decision", **{"agent.on_interrupt": f"{INBOX}:approve"})
    assert report.problems == []
    assert set(report.bound) == {"find_book", "lend_book"}


@pytest.mark.slow
def test_a_request_of_the_agent_inbox_gets_a_reply_that_it_allows(
    tried: Callable[..., AgentReport],
) -> None:
    report = tried(f"{INBOX}:by_inbox")
    assert report.problems == []
    assert not [each for each in report.concerns if "crashed" in each]


@pytest.mark.slow
def test_a_machine_that_the_agents_own_code_reaches_is_named_and_can_be_allowed(
    tried: Callable[..., AgentReport],
) -> None:
    report = tried(f"{INBOX}:downloading")
    [problem] = report.problems
    assert "It tried to reach files.invalid, which a trial blocks." in problem
    assert report.options == ("--allow-host", "files.invalid")
    for name in ("files.invalid", "invalid"):
        assert (
            tried(f"{INBOX}:downloading", **{"agent.allow_host": [name]}).problems == []
        )
