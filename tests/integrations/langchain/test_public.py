"""LangGraph agents of shapes that public examples have are trained as they are."""

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from shutil import copytree
from string import ascii_lowercase
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import load_agent
from agentgym.integrations.langchain import LangChainAdapter
from agentgym.models.nano import nano_path
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed, require_trainable
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.cli.conftest import Command, agentgym
from tests.integrations.exported import chat_model

__all__ = ["agentgym"]

HERE = "tests.integrations.langchain.public_agents"
load_agent(f"{HERE}:staged")  # it makes a model, which wants a key
public = import_module(HERE)

AGE = {"tool": "note_age", "args": {"years": 3}}
PART = {"tool": "order_part", "args": {"name": "hinge"}}
DONE = {"tool": "Finished", "args": {"tested": True}}


def settings(
    folder: Path,
    agent: str,
    expect: Sequence[Any],
    live: Sequence[str] = (),
    tools: str = "",
    check: str = "",
) -> TrainingConfig:
    path = folder / "repairs.jsonl"
    lines = [
        {"instruction": f"Repair {n}: 3 years, a hinge.", "expect": expect}
        for n in range(14)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = TaskSource(
        str(path),
        (f"{HERE}:{tools}" if tools else f"@{HERE}:{agent}",),
        answers="live" if live else "recorded",
        allow=tuple(live),
        check=f"{HERE}:{check}" if check else None,
    )
    return located(TrainingConfig.create(scenario=str(source), agent=f"{HERE}:{agent}"))


def tried(folder: Path, agent: str, *expect: Any) -> AgentReport:
    report = probed(settings(folder, agent, expect))
    assert report.problems == []
    return report


def played(
    config: TrainingConfig, folder: Path, replies: Sequence[Reply]
) -> tuple[Trajectory, list[ChatRequest]]:
    left, seen = list(replies), []

    def respond(request: ChatRequest) -> Reply:
        seen.append(request)
        return left.pop(0)

    [task] = get_scenario(config.scenario).tasks(Split.TEST, 0, 1)
    wanted = [RolloutRequest("r0", task, train=False, group="g", step=0)]
    with RolloutSession(config, ScriptedPolicy(respond), folder, 1) as opened:
        [made] = opened.run(wanted, lambda _: None)
    return made, seen


def called(need: dict[str, Any]) -> Reply:
    return Reply(calls=[(need["tool"], json.dumps(need["args"]))])


def names(request: ChatRequest) -> list[str]:
    return [tool["function"]["name"] for tool in request.tools]


@pytest.mark.slow
def test_a_live_tool_changes_the_state_of_the_graph_that_calls_it(
    tmp_path: Path,
) -> None:
    """Middleware without an asynchronous form offers tools by the state."""
    told = " ".join(tried(tmp_path, "staged", AGE, PART).concerns)
    assert "note_age can change the graph's state" in told
    config = settings(tmp_path, "staged", [AGE, PART], ["note_age", "order_part"])
    made, seen = played(config, tmp_path, [called(AGE), called(PART), Reply("Done.")])
    assert [names(each) for each in seen] == [
        ["note_age"],
        ["order_part"],
        ["order_part"],
    ]
    results = [call.result for call in made.get_tool_calls()]
    assert results == ["3 years", "ordered hinge"]
    assert made.success


@pytest.mark.slow
def test_an_answer_in_a_providers_form_is_a_call_that_is_trained(
    tmp_path: Path,
) -> None:
    assert tried(tmp_path, "judged", PART).own == {"Verdict": "is its answer"}
    config = settings(tmp_path, "judged", [PART])
    verdict = Reply(calls=[("Verdict", '{"fits": "yes"}')])
    made, seen = played(config, tmp_path, [called(PART), verdict])
    assert names(seen[1]) == ["Verdict"]
    assert made.success
    assert [call.wants_call for call in made.model_calls] == [False, True]
    told = probed(config.model_copy(update={"engine": "verl"})).problems
    assert 'method="function_calling"' in told[0]
    spoken, _ = played(config, tmp_path, [called(PART), Reply("It fits.")])
    assert str(spoken.reason).startswith("wrong form: a call was asked for")


def test_another_model_answers_on_edges_too() -> None:
    verdict = ("Verdict", '{"fits": "yes"}')
    left = iter([called(PART), Reply(calls=[verdict])])
    model = chat_model(lambda request: next(left))
    copy = LangChainAdapter().with_model(public.judged, model)
    state = copy.invoke({"messages": [("user", "A hinge.")]})
    assert state["messages"][-1].text == "ordered hinge"
    assert next(left, None) is None
    edges = [set(graph.get_graph().edges) for graph in (copy, public.judged)]
    assert edges[0] == edges[1]


@pytest.mark.slow
def test_a_call_that_ends_the_agent_is_made(tmp_path: Path) -> None:
    told = " ".join(tried(tmp_path, "finishing", PART, DONE).concerns)
    assert "Calls of Finished end the agent" in told
    config = settings(tmp_path, "finishing", [PART, DONE])
    made, _ = played(config, tmp_path, [called(PART), called(DONE)])
    outcomes = [call.outcome for call in made.get_tool_calls()]
    assert outcomes == [ToolOutcome.OK, ToolOutcome.OK]
    assert made.success
    both = Reply(calls=[*called(PART).calls, *called(DONE).calls])
    skipped, _ = played(config, tmp_path, [both])
    assert not skipped.success


@pytest.mark.slow
def test_each_episode_has_a_store_as_on_a_server(tmp_path: Path) -> None:
    tried(tmp_path, "noting", PART)
    config = settings(tmp_path, "noting", [PART])
    for _ in range(2):
        made, seen = played(config, tmp_path, [called(PART), Reply("Done.")])
        told = [request.messages[0]["content"] for request in seen]
        assert told == ["0 notes.", "1 notes."]
    assert made.success
    assert public.noting.store is None


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["by_messages", "by_words"])
def test_functions_are_agents_with_their_own_inputs_and_results(
    tmp_path: Path, agent: str
) -> None:
    config = settings(tmp_path, agent, [PART], check="answers_done")
    made, seen = played(config, tmp_path, [called(PART), Reply("Done.")])
    assert made.success
    assert "a hinge" in seen[0].messages[-1]["content"]


@pytest.mark.slow
def test_an_agent_that_decides_by_a_form_gets_tasks_of_it(
    agentgym: Command, tmp_path: Path
) -> None:
    assert (
        "own tool  Verdict is its answer" in agentgym("inspect", f"{HERE}:sorting").out
    )
    told = agentgym("train", "--agent", f"{HERE}:sorting").err
    assert "24 requests, made of the schemas of Verdict." in told
    lines = (tmp_path / "sorting_tasks.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["expect"][0]["tool"] == "Verdict"


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["yes", "no"])
def test_a_check_gets_the_state_that_an_agent_without_tools_ends_in(
    tmp_path: Path, answer: str
) -> None:
    config = settings(tmp_path, "sorting", [], check="fits")
    assert probed(config).problems == []
    reply = called({"tool": "Verdict", "args": {"fits": answer}})
    made, _ = played(config, tmp_path, [reply])
    assert made.success is (answer == "yes")
    odd = {"scan": "_w==", "loop": "{'again': {...}}"}
    assert made.end_state == {"verdict": {"fits": answer}, **odd}


@pytest.mark.slow
@pytest.mark.parametrize("answer", ['{"fits": "perhaps"}', "[]"])
def test_a_form_that_does_not_fit_is_the_policys_failure(
    tmp_path: Path, answer: str
) -> None:
    config = settings(tmp_path, "judged", [PART])
    wrong = Reply(calls=[("Verdict", answer)])
    made, _ = played(config, tmp_path, [called(PART), wrong])
    assert str(made.reason).startswith("wrong form")


LINE = {"tool": "write_diary", "args": {"line": "hinge"}}
REPORT = {"tool": "Report", "args": {"part": "hinge"}}


@pytest.mark.slow
def test_calls_that_a_node_answers_itself_are_followed_once_allowed(
    tmp_path: Path,
) -> None:
    tools = "write_diary"
    asked = probed(settings(tmp_path, "diarist", [LINE], tools=tools))
    [problem] = asked.problems
    assert "Calls of write_diary are answered by the agent's own code" in problem
    assert "--tools live --allow-tool write_diary" in problem
    config = settings(tmp_path, "diarist", [LINE], live=[tools], tools=tools)
    report = probed(config)
    assert report.problems == []
    assert report.bound == ["write_diary"]
    told = " ".join(report.concerns)
    assert "Calls of write_diary are answered by the agent's own code" in told
    assert "also offered Report, whose calls the agent" in told
    replies = [called(LINE), called(REPORT), Reply("Done.")]
    made, seen = played(config, tmp_path, replies)
    line, reported = made.get_tool_calls()
    assert (line.result, line.outcome) == ("Ana wrote hinge", ToolOutcome.OK)
    assert reported.outcome is ToolOutcome.OK
    assert made.success
    offered = seen[0].tools[0]["function"]["parameters"]["properties"]
    assert list(offered) == ["line"]


@pytest.mark.slow
def test_a_wrong_call_that_makes_the_agent_crash_is_the_policys_failure(
    tmp_path: Path,
) -> None:
    config = settings(tmp_path, "diarist", [LINE], ["write_diary"], "write_diary")
    wrong = Reply(calls=[("write_diary", '{"text": "hinge"}')])
    made, _ = played(config, tmp_path, [wrong])
    assert str(made.reason).startswith("wrong call: Error: line: Field required")
    assert not made.success


@pytest.mark.slow
def test_inspect_takes_the_tools_and_the_model_that_train_takes(
    agentgym: Command, tmp_path: Path
) -> None:
    words = ("--tools-from", f"{HERE}:write_diary", "--model", "nano", "--json")
    words += ("--tools", "live", "--allow-tool", "write_diary")
    tasks = tmp_path / "tasks.jsonl"
    with tasks.open("w") as file:
        for word in ascii_lowercase[:12]:
            call = {"tool": "write_diary", "args": {"line": word}}
            row = {"instruction": f"Write {word}.", "expect": [call]}
            print(json.dumps(row), file=file)
    for on in ((), (str(tasks),), ("--tasks", str(tasks))):
        ended = agentgym("inspect", f"{HERE}:diarist", *on, *words)
        assert ended.code == 0, ended.err
        report = json.loads(ended.out)
        assert (report["bound"], report["too_long"]) == (["write_diary"], "")


@pytest.mark.slow
def test_a_tokenizer_that_cannot_be_read_is_left_to_whatever_loads_it(
    tmp_path: Path,
) -> None:
    model = tmp_path / "model"
    copytree(nano_path(), model)
    (model / "tokenizer.json").write_text("{")
    config = settings(tmp_path, "noting", [PART]).replaced(model=str(model))
    assert (probed(config).problems, probed(config).too_long) == ([], "")


@pytest.mark.slow
def test_prompts_that_the_model_cannot_read_are_named_before_training(
    tmp_path: Path,
) -> None:
    told = "word " * 1200
    config = settings(tmp_path, "noting", [PART])
    path = TaskSource.parse(config.scenario).path
    text = Path(path).read_text().replace("Repair", f"{told} Repair")
    Path(path).write_text(text)
    report = probed(config)
    assert report.problems == []
    assert "more than the 1,024 that nano reads" in report.too_long
    with pytest.raises(UnsupportedError, match=r"first prompt .*--model"):
        require_trainable(config, report)
