"""Really call an agent's tools, one call an episode, where the agent calls them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.core.tools import Tool, ToolOutcome
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import ToolError
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks
from agentgym.scenarios.tool_tasks.stubs import example_arguments

Answer = Callable[[ChatRequest], Reply]


@contextmanager
def real_tools(
    agent: str,
    tasks: Path,
    tools: Sequence[Tool],
    allow: Sequence[str],
    passing: Collection[str],
) -> Iterator[dict[str, Tool]]:
    """Provide tools by name; a call of one in ``allow`` really runs in its agent.

    ``passing`` are the names of tools that pass control to another agent.
    """
    source = TaskSource(str(tasks), answers="live", allow=tuple(allow))
    config = located(TrainingConfig.create(scenario=str(source), agent=agent))
    config = config.replaced(workers=1, max_attempts=1)

    [task] = make_tasks(get_scenario(config.scenario), Split.TRAIN, config.seed, 1)
    numbers, answers = count(), list[Answer]()

    def call(name: str, arguments: dict[str, Any]) -> str:
        answers[:] = [_caller(name, arguments, passing)]
        number = f"call-{next(numbers)}"
        asked = RolloutRequest(number, task, True, number, step=0)
        [ended] = session.run([asked], lambda _: None)
        if not (made := ended.get_tool_calls(name)):
            raise ToolError(f"its agent did not come to call it ({ended.reason})")
        if made[0].outcome is not ToolOutcome.OK:
            raise ToolError(made[0].result.removeprefix("Error: "))
        return made[0].result

    def really(tool: Tool) -> Tool:
        def run(**arguments: Any) -> str:
            return call(tool.spec.name, arguments)

        return Tool(tool.spec, run, as_written=True)

    with TemporaryDirectory(prefix="agentgym-record-") as folder:
        policy = ScriptedPolicy(lambda request: answers[-1](request))
        with RolloutSession(config, policy, Path(folder), 1) as session:
            yield {tool.spec.name: really(tool) for tool in tools}


def _caller(name: str, given: dict[str, Any], passing: Collection[str]) -> Answer:
    """Return a model that makes one call, in the agent of a team that has the tool."""
    made: set[str] = set()

    def answer(request: ChatRequest) -> Reply:
        offered = {x["function"]["name"]: x["function"] for x in request.tools}
        for each in (name, *passing):
            if each in offered and name not in made and each not in made:
                made.add(each)
                schema = offered[each].get("parameters") or {}
                args = given if each == name else example_arguments(schema)
                return Reply(calls=[(each, args)])
        return Reply("Done.")

    return answer
