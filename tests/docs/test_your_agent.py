"""The table of docs/your_agent.md says what the tests of live agents show."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.integrations import test_authored as authored
from tests.integrations import test_on_client as on_client
from tests.integrations.langchain import test_authored as langgraph
from tests.plugins.adk import test_authored as adk
from tests.plugins.agent_framework import test_authored as agent_framework
from tests.plugins.autogen import test_authored as autogen
from tests.plugins.crewai import test_authored as crewai
from tests.plugins.llamaindex import test_authored as llamaindex
from tests.plugins.openai_agents import test_authored as openai_agents
from tests.plugins.pydantic_ai import test_authored as pydantic_ai
from tests.plugins.smolagents import test_authored as smolagents
from tests.plugins.strands import test_authored as strands

PAGE = Path(__file__).parents[2] / "docs" / "your_agent.md"
HEADS = {
    "LangGraph": langgraph,
    "AutoGen": autogen,
    "CrewAI": crewai,
    "OpenAI Agents SDK": openai_agents,
    "pydantic-ai": pydantic_ai,
    "Agent Framework": agent_framework,
    "LlamaIndex": llamaindex,
    "Google ADK": adk,
    "Strands": strands,
    "smolagents": smolagents,
}
FACTORIES = {
    "a factory without parameters": "make_own",
    "a factory that takes the model": "make_on",
    "an asynchronous factory": "make_later",
}
WORKS = {
    "AutoGen": {
        "`AssistantAgent` with tools": "clerk",
        "a workbench of one's own": "far",
        "`RoundRobinGroupChat`": "pair",
        "`SelectorGroupChat`, the selector's model too": "selected",
        "`Swarm` with hand-offs": "swarm",
        "a team in a team, a `SocietyOfMindAgent`": "nested",
        "an agent as a tool of another": "boss",
        "`MagenticOneGroupChat`": "magentic",
        "`output_content_type`": "structured",
        **FACTORIES,
    },
    "CrewAI": {
        "`Agent`": "scribe",
        "`Task`": "work",
        "a sequential `Crew`": "pair",
        "a class marked with `@CrewBase`": "Office",
        "a hierarchical `Crew`, by `manager_llm`": "led",
        "a hierarchical `Crew`, by `manager_agent`": "headed",
        "an agent that plans, `planning_config`": "planning",
        "`output_pydantic`": "structured",
        "`output_json`": "in_json",
        **FACTORIES,
    },
    "OpenAI Agents SDK": {
        "`Agent` with function tools": "clerk",
        "hand-offs": "desk",
        "`handoff(...)` with a callback": "noted",
        "hand-offs there and back": "circle",
        "an agent as a tool, `as_tool`": "boss",
        "`output_type`": "typed",
        "dynamic instructions, a run context": "knowing",
        "guardrails that ask a model, left out": "guarded",
        "tools that need approval": "approved",
        "hosted tools, left out": "searching",
        **FACTORIES,
    },
    "Agent Framework": {
        "`Agent` with tools": "clerk",
        "a client of chat completions": "chatty",
        "an agent as a tool, `as_tool`": "boss",
        "`response_format`": "typed",
        "options of a provider's, left out": "thinking",
        "hosted tools, left out": "searching",
        "tools that need approval": "approved",
        "middleware": "reminded",
        "a workflow of agents": "chain",
        "a workflow with a state of its own": "counted",
        "a workflow that asks a person": "asked",
        "`SequentialBuilder`": "sequence",
        "`HandoffBuilder`": "handed",
        **FACTORIES,
        "a factory of a workflow": "make_workflow",
    },
    "LlamaIndex": {
        "`FunctionAgent` with tools": "clerk",
        "an agent without a name and prompt": "bare",
        "an agent that does not stream": "whole",
        "`output_cls`": "typed",
        "`AgentWorkflow` with hand-offs": "desk",
        "a workflow with a state": "counted",
        "an agent in a tool of another": "boss",
        **FACTORIES,
    },
    "Google ADK": {
        "`Agent` with tools": "clerk",
        "an agent without an instruction": "bare",
        "an agent as a tool, `AgentTool`": "boss",
        "`sub_agents`": "desk",
        "`SequentialAgent`": "chain",
        **FACTORIES,
    },
    "Strands": {
        "`Agent` with tools": "clerk",
        "an agent without a name and prompt": "bare",
        "a model of Amazon Bedrock, by its name": "on_bedrock",
        "`structured_output_model`": "typed",
        "an agent as a tool of another": "boss",
        "an agent that a tool makes": "leading",
        **FACTORIES,
    },
    "smolagents": {
        "`ToolCallingAgent` with tools": "clerk",
        "an agent without a name and instructions": "bare",
        "`stream_outputs`": "streaming",
        "`planning_interval`": "planning",
        "`managed_agents`": "boss",
        **FACTORIES,
    },
    "pydantic-ai": {
        "`Agent` with tools": "clerk",
        "an agent without a model": "without_model",
        "a toolset": "held",
        "a toolset that a function chooses, `@agent.toolset`": "deciding",
        "dependencies, dynamic instructions": "knowing",
        "an output type by a tool": "typed",
        "an output type by the provider, `NativeOutput`": "native",
        "an output validator": "checked",
        "an agent in a tool of another": "boss",
        "tools that need approval": "approved",
        "an output function, a toolset with `.prefixed` and `.approval_required`": (
            "wary"
        ),
        **FACTORIES,
    },
}
MISDEEDS = {
    "an agent that never asks its model": "deaf",
    "an agent that raises": "breaking",
    "an agent that calls `sys.exit`": "exiting",
}
REFUSED = dict.fromkeys(WORKS, MISDEEDS) | {
    "AutoGen": {**MISDEEDS, "an agent that loops for ever": "looping"},
    "CrewAI": {**MISDEEDS, "a crew whose tasks say nothing of the request": "silent"},
    "Google ADK": {key: MISDEEDS[key] for key in MISDEEDS if "exit" not in key},
}


def tried_by(*tests: Callable[..., Any]) -> set[str]:
    """Return the first argument of every case of tests."""
    found: set[str] = set()
    for test in tests:
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize":
                cases = (getattr(case, "values", case) for case in mark.args[1])
                found |= {case[0] for case in cases if isinstance(case[0], str)}
    return found


def table() -> dict[str, dict[str, set[str]]]:
    """Return the rows of the page, by framework: what works, and what is refused."""
    found: dict[str, dict[str, set[str]]] = {}
    page = PAGE.read_text()
    part = page[page.index("## What works") : page.index("## Public agents")]
    rows = re.findall(r"^\| ([\w -]+) \| (.+) \| (works|refused) \|$", part, re.M)
    for framework, row, verdict in rows:
        found.setdefault(framework, {}).setdefault(verdict, set()).add(row)
    return found


def plain(rows: Iterable[str]) -> set[str]:
    return {row.replace("`", "") for row in rows}


def test_what_the_table_says_is_what_tests_show() -> None:
    said = table()
    assert said.keys() == HEADS.keys()
    assert plain(said["LangGraph"]["works"]) == plain(langgraph.WORKS)
    assert plain(said["LangGraph"]["refused"]) == plain(langgraph.REFUSED)
    for framework, works in WORKS.items():
        assert said[framework] == {
            "works": set(works),
            "refused": set(REFUSED[framework]),
        }


def test_each_row_has_a_test() -> None:
    led = [case.values for case in authored.cases()]
    for framework, module in HEADS.items():
        if framework not in WORKS:
            continue
        shown = tried_by(crewai.test_its_models_and_tools_are_led_to_training)
        if module is not crewai:
            folder = module.__name__.split(".")[-2]
            shown = {case[1] for case in led if case[0] == folder}
        assert set(WORKS[framework].values()) <= shown
        failing = module if module in (autogen, crewai) else on_client
        refusing = module if module is crewai else on_client
        shown = tried_by(
            failing.test_what_goes_wrong_drops_the_episode_and_says_why,
            refusing.test_what_cannot_be_trained_is_refused,
        )
        assert set(REFUSED[framework].values()) <= shown
