"""An agent is the same before and after it was trained, and answers as trained.

Each test trains for real: what is compared has been through the whole way, from the
module of the app to the agent that comes back.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from llama_index.core.workflow import WorkflowRuntimeError

from agentgym import Trainer, TrainingResult
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import ModelCall
from agentgym.engines.local.policy import LocalPolicy
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed
from agentgym.rollout.store.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"


def folder_of(framework: str) -> Path:
    """Return the folder of a framework's app."""
    own = EXAMPLES / framework
    return own if own.is_dir() else EXAMPLES / "bring_your_agent" / framework


def ask_graph(graph: Any) -> None:
    """Say something in a thread, and see that it is remembered there."""
    thread = {"configurable": {"thread_id": "after"}}
    state = graph.invoke({"messages": [("user", "Cancel visit A100.")]}, thread)
    assert graph.get_state(thread).values["messages"] == state["messages"]


def ask_assistant(agent: Any) -> None:
    """Say something to an assistant."""
    assert asyncio.run(agent.run(task="Order 20 bolts.")).messages


def ask_crew(crew: Any) -> None:
    """Give a crew its inputs."""
    assert crew.kickoff({"request": "Lend Emma to Tom."}).tasks_output


def ask_sdk_agent(agent: Any) -> None:
    """Run an agent, whose policy may hand over or not."""
    from agents import Runner

    assert asyncio.run(Runner.run(agent, "How many bells are there?")).raw_responses


def ask_workflow(workflow: Any) -> None:
    """Run a workflow, whose desk may answer or hand over."""
    assert len(asyncio.run(workflow.run("Is a suite free?")))


def ask_llama_workflow(workflow: Any) -> None:
    """Run a workflow, whose policy may go on until it has made all its steps."""

    async def run() -> Any:
        return await workflow.run("Who owns B-AB 12?", max_iterations=3)

    with suppress(WorkflowRuntimeError):
        assert asyncio.run(run()).response


def ask_pydantic_agent(agent: Any) -> None:
    """Run an agent, whose policy may call a tool wrongly more often than it allows."""
    from pydantic_ai import UnexpectedModelBehavior

    bank = import_module("bank").Bank()
    with suppress(UnexpectedModelBehavior):
        assert agent.run_sync("Block my card 4711!", deps=bank).output


CASES = {
    "langgraph": ("clinic:graph", ask_graph, "work at the desk of a clinic"),
    "autogen": ("warehouse:agent", ask_assistant, "run a warehouse"),
    "crewai": ("library:crew", ask_crew, "run the desk of a library"),
    "agent_framework": ("hotel:workflow", ask_workflow, "the desk of a hotel"),
    "llamaindex": ("garage:garage", ask_llama_workflow, "the desk of a garage"),
    "openai_agents": ("bike_shop:desk", ask_sdk_agent, "the desk of a bike shop"),
    "pydantic_ai": ("bank:support", ask_pydantic_agent, "the support of a bank"),
}


def needs(instruction: str, tool: str, **args: str) -> dict[str, Any]:
    """Return a line of a tasks file whose task needs one call."""
    return {"instruction": instruction, "expect": [{"tool": tool, "args": args}]}


ROOMS = ("blue", "green", "red", "amber", "white", "grey")
LOOKED_UP = [
    needs(f"What do the posts say about {it}?", "retrieve_posts", topic=it)
    for it in ROOMS
]
BOOKED = [needs(f"Please book the room {it}.", "book_room", room=it) for it in ROOMS]


def ask_router(graph: Any) -> None:
    """Ask a graph whose model decides in a form."""
    assert graph.invoke({"messages": [("user", "Book the room blue.")]})["messages"]


def ask_receipt(crew: Any) -> None:
    """Give a crew a task whose answer is an object."""
    given = crew.kickoff({"task": "Book the room blue."}).tasks_output[0].pydantic
    assert set(given.model_dump()) == {"room", "booked"}


IN_FORMS = {
    "rag": (
        *("tests.train.structured_agents:rag", "langchain", "GradeDocuments"),
        *(LOOKED_UP, ask_router),
    ),
    "crew": (
        *("tests.train.structured_crew:crew", "crewai", "Receipt"),
        *(BOOKED, ask_receipt),
    ),
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Train on few tasks, from a folder of the test's own."""
    for name in ("TEST_TASKS", "EVAL_TASKS"):
        monkeypatch.setenv(f"AGENTGYM_{name}", "8")
    monkeypatch.setenv("AGENTGYM_EVAL_SAMPLES", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "of their authors")
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("framework", CASES)
def test_what_comes_back_is_what_went_in_but_trained(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, ask, prompt = CASES[framework]
    monkeypatch.syspath_prepend(str(folder_of(framework)))
    module, _, name = reference.partition(":")
    agent = getattr(import_module(module), name)
    inside = {key: id(value) for key, value in vars(agent).items()}
    result = trained(agent, framework)

    assert {key: id(value) for key, value in vars(agent).items()} == inside
    assert type(result.agent) is type(agent)
    assert result.agent is not agent

    exchanges = recorded(monkeypatch)
    ask(result.agent)
    request, result_of_it = exchanges[0]
    assert prompt in str(request.messages)
    assert request.tools == offered_in_training(result)
    with_trained = asyncio.run(result.trained.load_policy().chat(request))
    with_base = asyncio.run(LocalPolicy.load("nano").chat(request))
    assert with_trained.logprobs == pytest.approx(result_of_it.logprobs, abs=1e-3)
    if with_base.response_ids == result_of_it.response_ids:  # both may be sure of it
        assert with_base.logprobs != pytest.approx(result_of_it.logprobs, abs=1e-6)


@pytest.mark.slow  # trains, with a framework each
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", IN_FORMS)
def test_an_agent_that_answers_in_a_form_comes_back_trained(
    name: str, tmp_path: Path
) -> None:
    reference, framework, form, lines, ask = IN_FORMS[name]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("\n".join(map(json.dumps, lines * 4)))
    agent = resolve_name(reference)
    inside = {key: id(value) for key, value in vars(agent).items()}
    assert inspected(reference, tasks, framework).problems == []

    result = Trainer().train(
        agent=reference, tasks=tasks, framework=framework, episodes=64, yes=True
    )

    assert {key: id(value) for key, value in vars(agent).items()} == inside
    assert type(result.agent) is type(agent)
    ask(result.agent)
    held = calls_in(result, form)
    assert held
    whole = [call for call in held if call.finish_reason != "length"]
    assert all(call.tool_calls[0].name == form for call in whole)


def inspected(
    agent: str, tasks: str | Path, framework: str, **settings: Any
) -> AgentReport:
    """Return what a look into an agent finds."""
    config = TrainingConfig.create(
        scenario=str(tasks), agent=agent, framework=framework, **settings
    )
    return probed(located(config))


def calls_in(result: TrainingResult, form: str) -> list[ModelCall]:
    """Return the model calls of a training that were answered in a form."""
    with Store(result.artifacts.run / "rollouts.db") as store:
        rollouts, *_ = store.list_terminal(0, 40)
        calls = [c for each in rollouts for c in store.model_calls(each.rollout_id)]
    return [call for call in calls if call.grammar and call.grammar.form == form]


def trained(agent: Any, framework: str) -> TrainingResult:
    """Train for two steps at a high rate, so that it says something else.

    With a warm start, as the examples' ``train.py``, of which most are run in a sweep.
    """
    more: dict[str, Any] = {"learning_rate": 5e-3, "tasks_per_step": 4}
    more |= {"warm_start": True, "warm_start_tasks": 8}
    if framework == "crewai":
        more["agent.inputs"] = "inputs:of_task"
    if framework == "pydantic_ai":
        more["agent.context"] = "bank:bank_of"
    tasks = folder_of(framework) / "tasks.jsonl"
    return Trainer().train(agent=agent, tasks=tasks, episodes=64, yes=True, **more)


def offered_in_training(result: TrainingResult) -> list[dict[str, Any]]:
    """Return the tools that the model of a rollout was offered."""
    with Store(result.artifacts.run / "rollouts.db") as store:
        [first], *_ = store.list_terminal(0, 1)
        return store.model_calls(first.rollout_id)[0].tools


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ChatRequest, ChatResult]]:
    """Return what policies of this process are asked from now on, and say."""
    exchanges = []
    chat, stream = LocalPolicy.chat, LocalPolicy.stream

    async def chat_and_note(self: LocalPolicy, request: ChatRequest) -> ChatResult:
        result = await chat(self, request)
        exchanges.append((request, result))
        return result

    async def stream_and_note(
        self: LocalPolicy, request: ChatRequest
    ) -> AsyncIterator[str | ChatResult]:
        async for piece in stream(self, request):
            if isinstance(piece, ChatResult):
                exchanges.append((request, piece))
            yield piece

    monkeypatch.setattr(LocalPolicy, "chat", chat_and_note)
    monkeypatch.setattr(LocalPolicy, "stream", stream_and_note)
    return exchanges
