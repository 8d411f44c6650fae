"""What `agentgym solve` costs beyond LangGraph: CPU time and first output.

The roles are scripted chat models that answer at once: a round of generator, reviewer
and executor under the supervisor. Against it the same graph runs with tools that only
return fixed texts: that is LangGraph's own part.

    uv run python benchmarks/solve.py
"""

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from machine import machine

TESTS = {
    "tests/test_solution.py": (
        "from solution import flip\n\n\n"
        "def test_flip():\n    assert flip('ab') == 'ba'\n"
    )
}
CODE = "def flip(text):\n    return text[::-1]\n" + "".join(
    f"\n\ndef f{n}(a):\n    return a + {n}\n" for n in range(8)
)


class Role(BaseChatModel):
    """A chat model that answers with a function of the messages."""

    play: Any
    first: Any = None

    @property
    def _llm_type(self) -> str:
        return "role"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        """Answer the same whatever is offered."""
        return self

    def _generate(
        self,
        messages: Any,
        stop: Any = None,
        run_manager: Any = None,
        **options: Any,
    ) -> ChatResult:
        message = self.play(messages)
        if self.first is not None and not self.first:
            self.first.append(time.perf_counter())
        return ChatResult(generations=[ChatGeneration(message=message)])


def call(tool: str, **arguments: Any) -> AIMessage:
    """Return an answer that calls a tool."""
    made = {"name": tool, "args": arguments, "id": f"call-{time.perf_counter_ns()}"}
    return AIMessage("", tool_calls=[made])


def cast(code: str, first: list[float] | None = None) -> dict[str, BaseChatModel]:
    """Return the roles of one round that goes well."""

    def lead(messages: Any) -> AIMessage:
        facts = messages[-1].text
        for sign, to in (
            ("Code: none", "generator"),
            ("Review: none", "reviewer"),
            ("Tests: not run", "executor"),
        ):
            if sign in facts:
                return call("hand_over", to=to)
        return call("hand_over", to="finish")

    def write(messages: Any) -> AIMessage:
        if messages[-1].type == "human":
            return call("write_file", path="solution.py", text=code)
        return AIMessage("Written.")

    def check(messages: Any) -> AIMessage:
        if messages[-1].type == "human":
            return call("lint", path="solution.py")
        if messages[-1].name == "lint":
            return call("check_security", path="solution.py")
        return AIMessage("Checked.")

    def test(messages: Any) -> AIMessage:
        if messages[-1].type == "human":
            return call("run_tests")
        return AIMessage("Passed.")

    return {
        "supervisor": Role(play=lead, first=first),
        "generator": Role(play=write),
        "reviewer": Role(play=check),
        "executor": Role(play=test),
    }


def canned() -> list[StructuredTool]:
    """Return tools that return fixed texts, with the states of such a round."""
    done: list[str] = []

    def state(event: str = "look", role: str = "") -> str:
        """Return the state of the work."""
        tests = {"passed": 1, "failed": 0, "failures": []}
        facts = {
            "written": "write_file" in done,
            "simple": False,
            "reviewed": "check_security" in done,
            "serious": 0,
            "tests": tests if "run_tests" in done else None,
            "rounds": 1,
            "max_rounds": 3,
            "changed": ["solution.py"],
            "test_files": [],
            "given": [],
            "target": "solution.py",
            "repeated": False,
        }
        files = {"solution.py": CODE} if "write_file" in done else {}
        work = {"files": files, "findings": [], "tests": facts["tests"]}
        return json.dumps({**work, "facts": facts})

    def named(name: str, function: Callable[..., str]) -> StructuredTool:
        async def run(**arguments: Any) -> str:
            done.append(name)
            return function(**arguments)

        schema = StructuredTool.from_function(function, name=name).args_schema
        return StructuredTool(
            name=name, description=name, args_schema=schema, coroutine=run
        )

    def hand_over(to: str, note: str = "") -> str:
        """Hand over."""
        return "Yes."

    def write_file(path: str, text: str) -> str:
        """Write."""
        return "Wrote it."

    def look(path: str = "") -> str:
        """Look."""
        return "No problems."

    found = [named("team_state", state), named("hand_over", hand_over)]
    found += [named("write_file", write_file)]
    return [*found, *(named(n, look) for n in ("lint", "check_security", "run_tests"))]


def cpu() -> tuple[float, float]:
    """Return the CPU seconds of this process, and those of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime


async def ours(code: str) -> tuple[float, float, float]:
    """Solve once; return CPU of the process and its children, and first output."""
    from agentgym.plugins.team.solving.solve import TeamSession

    first: list[float] = []
    shown: list[float] = []
    before = cpu()
    with TeamSession(
        cast(code, first),
        files=TESTS,
        listener=lambda event: (
            None if event.kind == "asked" else shown.append(time.perf_counter())
        ),
    ) as session:
        solution = await session.ask("Write a function that flips a text")
        after = cpu()
    assert solution.passed, solution
    return after[0] - before[0], after[1] - before[1], shown[0] - first[0]


async def theirs() -> float:
    """Run the same graph with tools that do nothing; return CPU of the process."""
    from langgraph.checkpoint.memory import InMemorySaver

    from agentgym.plugins.team.coding_team.graph import build_team

    before = cpu()
    graph = build_team(cast(CODE), canned(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    given = {"messages": [("user", "Write a function that flips a text")]}
    async for _ in graph.astream(given, config, stream_mode="updates"):
        pass
    return cpu()[0] - before[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    asyncio.run(ours(CODE))  # imports, and the first check
    asyncio.run(theirs())
    own, children, first, graph = [], [], [], []
    for number in range(rounds):
        mine = asyncio.run(ours(f"{CODE}\n\nROUND = {number}\n"))
        own.append(mine[0])
        children.append(mine[1])
        first.append(mine[2])
        graph.append(asyncio.run(theirs()))
    print(f"{machine()}\n")
    print("| a round of three roles | median of the rounds |")
    print("|---|---|")
    for what, seconds in (
        ("CPU of `solve`", median(own)),
        ("CPU of LangGraph's part", median(graph)),
        ("CPU beyond LangGraph's", median(own) - median(graph)),
        ("CPU of the linter's process and others that ended", median(children)),
        ("first output after the first answer", median(first)),
    ):
        print(f"| {what}, ms | {1000 * seconds:.1f} |")


if __name__ == "__main__":
    main()
