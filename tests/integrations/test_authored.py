"""Agents of every framework as their authors wrote them are led to training."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.integrations.registry import is_installed
from tests.integrations.authored_runs import LIST, OK, acting, roles, run

ELSEWHERE = "google-adk cannot be installed beside CrewAI: `.ci/run all` tests it"
PLAIN = {
    "adk": ("bare", "make_own", "make_on", "make_later"),
    "agent_framework": (
        *("thinking", "searching", "approved", "reminded", "make_own", "make_on"),
        *("make_later", "make_workflow"),
    ),
    "autogen": ("clerk", "make_own", "make_on", "make_later", "far"),
    "llamaindex": ("bare", "whole", "counted", "make_own", "make_on", "make_later"),
    "openai_agents": (
        *("knowing", "approved", "searching", "make_own", "make_on", "make_later"),
    ),
    "pydantic_ai": (
        *("without_model", "held", "deciding", "knowing", "approved", "make_own"),
        *("make_on", "make_later"),
    ),
    "smolagents": ("bare", "streaming", "make_own", "make_on", "make_later"),
    "strands": ("bare", "on_bedrock", "make_own", "make_on", "make_later"),
}
"""Agents that list the files, and then answer."""
CONTEXTS = {"openai_agents": "user", "pydantic_ai": "deps"}


def call(name: str, **arguments: Any) -> Reply:
    return Reply(calls=[(name, arguments)])


def ledger(who: str, *, done: bool = False) -> Reply:
    """Return what MagenticOne's orchestrator asks for before each turn."""

    def entry(answer: object) -> dict[str, object]:
        return {"reason": "so", "answer": answer}

    return call(
        "LedgerEntry",
        is_request_satisfied=entry(done),
        is_in_loop=entry(False),
        is_progress_being_made=entry(True),
        next_speaker=entry(who),
        instruction_or_question=entry("Look."),
    )


PLAN, DONE, FINAL = Reply("Look."), Reply("DONE"), call("final_answer", answer="Okay.")
FORM = {"text": "Two.", "files": 2}
BACK = ["boss", "clerk", "clerk", "boss"]
TEAM = ["planner", "worker", "worker"]
MANAGED = ["SelectorGroupChatManager", "worker", "worker"]
MAGENTIC = [OK, OK, ledger("worker"), LIST, OK, ledger("worker", done=True), OK]
AROUND = [call("transfer_to_worker"), LIST, call("transfer_to_circle"), OK]
Case = tuple[str, str, list[Reply], list[str] | None]
OTHERS: list[Case] = [
    ("adk", "clerk", [LIST, OK], ["clerk"] * 2),
    (
        "adk",
        "boss",
        [call("helper", request="?"), LIST, OK, OK],
        ["boss", "helper", "helper", "boss"],
    ),
    (
        "adk",
        "desk",
        [call("transfer_to_agent", agent_name="back"), LIST, OK],
        ["desk", "back", "back"],
    ),
    ("adk", "chain", [LIST, OK, OK], ["first", "first", "second"]),
    ("agent_framework", "clerk", [LIST, OK], ["clerk"] * 2),
    ("agent_framework", "chatty", [LIST, OK], ["agent"] * 2),
    ("agent_framework", "boss", [call("ask_clerk", question="?"), LIST, OK, OK], BACK),
    ("agent_framework", "typed", [LIST, call("Answer", **FORM)], None),
    ("agent_framework", "chain", [PLAN, LIST, OK], TEAM),
    ("agent_framework", "asked", [LIST, OK], ["worker"] * 2),
    ("agent_framework", "counted", [LIST, OK], ["worker"] * 2),
    ("agent_framework", "sequence", [PLAN, LIST, OK], TEAM),
    (
        "agent_framework",
        "handed",
        [call("handoff_to_expert"), LIST, OK],
        ["desk", "expert", "expert"],
    ),
    ("autogen", "pair", [Reply("Do."), LIST, DONE], TEAM),
    ("autogen", "selected", [Reply("worker"), LIST, DONE], MANAGED),
    (
        "autogen",
        "swarm",
        [call("transfer_to_worker"), LIST, DONE],
        ["desk", "worker", "worker"],
    ),
    ("autogen", "nested", [LIST, OK, OK], ["worker", "worker", "planner"]),
    ("autogen", "society", [LIST, OK, Reply("All fine.")], None),
    ("autogen", "structured", [LIST, call("Answer", text="Fine.")], None),
    ("autogen", "magentic", MAGENTIC, None),
    ("autogen", "boss", [call("worker", task="Look."), LIST, OK, OK], None),
    ("llamaindex", "clerk", [LIST, OK], ["clerk"] * 2),
    ("llamaindex", "typed", [LIST, OK, call("Answer", **FORM)], None),
    (
        "llamaindex",
        "desk",
        [call("handoff", to_agent="back", reason="?"), LIST, OK],
        ["front", "back", "back"],
    ),
    ("llamaindex", "boss", [call("ask_clerk", question="?"), LIST, OK, OK], BACK),
    ("llamaindex", "served", [LIST, OK], ["served"] * 2),
    ("openai_agents", "clerk", [LIST, OK], ["clerk"] * 2),
    (
        "openai_agents",
        "desk",
        [call("transfer_to_clerk"), LIST, OK],
        ["desk", "clerk", "clerk"],
    ),
    ("openai_agents", "noted", [call("transfer_to_clerk"), LIST, OK], None),
    (
        "openai_agents",
        "circle",
        AROUND,
        ["circle", "worker", "worker", "circle"],
    ),
    ("openai_agents", "boss", [call("ask_clerk", input="?"), LIST, OK, OK], BACK),
    ("openai_agents", "typed", [LIST, call("final_output", **FORM)], None),
    ("openai_agents", "guarded", [LIST, Reply("A secret.")], ["guarded"] * 2),
    ("pydantic_ai", "clerk", [LIST, OK], ["clerk"] * 2),
    ("pydantic_ai", "typed", [LIST, call("final_result", **FORM)], None),
    ("pydantic_ai", "native", [LIST, call("Answer", **FORM)], None),
    ("pydantic_ai", "boss", [call("ask_clerk", question="?"), LIST, OK, OK], BACK),
    ("pydantic_ai", "wary", [LIST, call("final_result", **FORM)], None),
    ("pydantic_ai", "checked", [LIST, Reply("No."), OK], None),
    ("smolagents", "clerk", [LIST, FINAL], ["clerk"] * 2),
    ("smolagents", "planning", [Reply("I plan."), LIST, FINAL], None),
    ("smolagents", "boss", [call("clerk", task="?"), LIST, FINAL, FINAL], BACK),
    ("strands", "clerk", [LIST, OK], ["clerk"] * 2),
    ("strands", "typed", [LIST, call("Answer", **FORM)], None),
    ("strands", "boss", [call("clerk", input="?"), LIST, OK, OK], BACK),
    (
        "strands",
        "leading",
        [call("ask_anew", question="?"), LIST, OK, OK],
        ["leading", "clerk", "clerk", "leading"],
    ),
]


def cases() -> Iterator[Any]:
    without_adk = pytest.mark.skipif(not is_installed("google.adk"), reason=ELSEWHERE)
    found = list(OTHERS)
    for framework, agents in PLAIN.items():
        end = FINAL if framework == "smolagents" else OK
        found += [(framework, agent, [LIST, end], None) for agent in agents]
    for case in found:
        marks = [without_adk] if case[0] == "adk" else []
        yield pytest.param(*case, id=f"{case[0]}-{case[1]}", marks=marks)


@pytest.mark.slow  # each starts workers that import a framework
@pytest.mark.parametrize(("framework", "agent", "script", "who"), list(cases()))
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path,
    framework: str,
    agent: str,
    script: list[Reply],
    who: list[str] | None,
) -> None:
    settings = {}
    if agent == "knowing":
        context = f"tests.plugins.{framework}.authored:{CONTEXTS[framework]}"
        settings = {"agent.context": context}
    found = run(tmp_path, framework, agent, *script, **settings)
    assert found.reward is not None, found.reason
    assert acting(found) == [("list_files", "ok", True)]
    assert len(found.model_calls) == len(script)
    assert who is None or roles(found) == who
