"""Really call an agent's tools, one call an episode, where the agent calls them."""

from collections.abc import Collection, Sequence
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


def real_tools(
    agent: str,
    tasks: Path,
    tools: Sequence[Tool],
    allow: Sequence[str],
    passing: Collection[str],
) -> dict[str, Tool]:
    """Return tools by name; a call of one in ``allow`` really runs in its agent.

    ``passing`` are the names of tools that pass control to another agent.
    """
    source = TaskSource(str(tasks), answers="live", allow=tuple(allow))
    config = located(TrainingConfig.create(scenario=str(source), agent=agent))
    config = config.replaced(workers=1, max_attempts=1)

    def really(tool: Tool) -> Tool:
        def run(**arguments: Any) -> str:
            return _called(config, tool.spec.name, arguments, passing)

        return Tool(tool.spec, run, as_written=True)

    return {tool.spec.name: really(tool) for tool in tools}


def _called(
    config: TrainingConfig, name: str, given: dict[str, Any], passing: Collection[str]
) -> str:
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

    [task] = make_tasks(get_scenario(config.scenario), Split.TRAIN, config.seed, 1)
    with TemporaryDirectory(prefix="agentgym-record-") as folder:
        policy = ScriptedPolicy(answer)
        with RolloutSession(config, policy, Path(folder), 1) as session:
            asked = RolloutRequest("call", task, True, "call", step=0)
            [ended] = session.run([asked], lambda _: None)
    answers = ended.get_tool_calls(name)
    if not answers:
        raise ToolError(f"its agent did not come to call it ({ended.reason})")
    if answers[0].outcome is not ToolOutcome.OK:
        raise ToolError(answers[0].result.removeprefix("Error: "))
    return answers[0].result
