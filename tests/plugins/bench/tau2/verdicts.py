"""Record conversations with τ²'s own orchestrator; judge each here and by τ².

``python verdicts.py CHECKOUT`` runs in an environment with what tau2-bench needs, and
prints a line a conversation: the domain, the task, how the script played it, both
rewards. Agent and user are scripts, so that no model is asked.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.errors import ToolError
from agentgym.plugins.bench.tau2 import Tau2Environment, Tau2Scenario

PLAYS = ("all calls", "no call", "one call less", "all calls, silent")
PER_DOMAIN = 4


class Script:
    """What agent and user do in a conversation: the calls of the solution, or some."""

    def __init__(self, task: Any, play: str) -> None:
        criteria = task.evaluation_criteria
        actions = list(criteria.actions or ())
        if play == "no call":
            actions = []
        elif play == "one call less":
            actions = actions[:-1]
        self.agent = [each for each in actions if each.requestor == "assistant"]
        self.user = [each for each in actions if each.requestor == "user"]
        said = [] if "silent" in play else criteria.communicate_info or []
        self.said = f"That is all. {' '.join(said)}"


def participants(scenario: Tau2Scenario, task: Any, script: Script) -> tuple[Any, Any]:
    """Return τ²'s agent and user, with the script instead of models."""
    types = scenario.tau2.module("data_model.message")
    agents = scenario.tau2.module("agent.llm_agent")
    users = scenario.tau2.module("user.user_simulator")
    environment = scenario.tau2.environment(scenario.domain, task)

    def call(action: Any, number: int) -> Any:
        return types.ToolCall(
            id=f"{action.requestor}-{number}",
            name=action.name,
            arguments=action.arguments,
            requestor=action.requestor,
        )

    class Agent(agents.LLMAgent):  # type: ignore[misc, name-defined]
        def generate_next_message(self, message: Any, state: Any) -> Any:
            made = Agent.made
            if made < len(script.agent):
                Agent.made += 1
                calls = [call(script.agent[made], made)]
                said = types.AssistantMessage(role="assistant", tool_calls=calls)
            else:
                said = types.AssistantMessage(role="assistant", content=script.said)
            return said, state

    class User(users.UserSimulator):  # type: ignore[misc, name-defined]
        def generate_next_message(self, message: Any, state: Any) -> Any:
            turn, User.made = User.made, User.made + 1
            if turn == 0:
                return types.UserMessage(role="user", content="Please help."), state
            if turn <= len(script.user):
                calls = [call(script.user[turn - 1], turn)]
                return types.UserMessage(role="user", tool_calls=calls), state
            return types.UserMessage(role="user", content="###STOP###"), state

    Agent.made = User.made = 0
    tools = environment.get_user_tools() if environment.user_tools else None
    agent = Agent(environment.get_tools(), environment.policy, llm="none")
    return agent, User(llm="none", instructions="", tools=tools)


def recorded(scenario: Tau2Scenario, task: Any, script: Script) -> Any:
    """Return a conversation that τ²'s own orchestrator recorded."""
    orchestrator = scenario.tau2.module("orchestrator.orchestrator").Orchestrator
    agent, user = participants(scenario, task, script)
    environment = scenario.tau2.registry.get_env_constructor(scenario.domain)()
    return orchestrator(scenario.domain, agent, user, environment, task).run()


class Recorded:
    """A user that says again what a recorded one said."""

    def __init__(self, messages: list[Any]) -> None:
        self._left = [each for each in messages if each.role == "user"]

    def get_init_state(self) -> None: ...

    def generate_next_message(self, message: Any, state: Any) -> Any:
        return self._left.pop(0), state

    def is_stop(self, message: Any) -> bool:
        return "###STOP###" in (message.content or "")


async def replayed(environment: Tau2Environment, messages: list[Any]) -> None:
    """Make the recorded agent's calls and answers in an environment of ours."""
    tools = {tool.spec.name: tool for tool in environment.tools()}
    for message in messages:
        if message.role != "assistant":
            continue
        for call in message.tool_calls or ():
            with suppress(ToolError):  # recorded as the answer
                await tools[call.name](**call.arguments)
        if message.tool_calls is None:
            environment.user_reply(message.content)


def judged(scenario: Tau2Scenario, name: str, messages: list[Any]) -> float:
    """Return the scenario's reward of a recorded conversation."""
    task = Task(
        id=name, split=Split.TEST, seed=0, family="", level=3, instruction="Hello."
    )
    environment = Tau2Environment(
        scenario.tau2,
        scenario.domain,
        scenario._found[name],
        lambda _: Recorded(messages),
    )
    asyncio.run(replayed(environment, messages))
    made = Trajectory(rollout_id="r", scenario="tau2", task_id=name)
    return scenario.calculate_reward(task, environment, made).value


def verdicts(checkout: Path) -> Iterator[dict[str, Any]]:
    """Yield both rewards of conversations in each domain."""
    for domain in ("airline", "retail", "telecom"):
        scenario = Tau2Scenario(str(checkout), domain)
        judge = scenario.tau2.module("evaluator.evaluator_nl_assertions")
        judge.generate = lambda messages, **_: SimpleNamespace(
            content=json.dumps({"results": []})  # no judge in words: it asks a model
        )
        test = scenario.tasks(Split.TEST, 0, PER_DOMAIN)
        for task, play in zip(test, PLAYS, strict=True):
            found = scenario._found[task.id]
            run = recorded(scenario, found, Script(found, play))
            theirs = scenario.tau2.verdict(
                domain, found, run.messages, run.termination_reason.value
            )
            ours = judged(scenario, task.id, run.messages)
            about = {"domain": domain, "task": task.id, "play": play}
            yield {**about, "theirs": theirs.reward, "ours": ours}


if __name__ == "__main__":
    for line in verdicts(Path(sys.argv[1])):
        sys.stdout.write(json.dumps(line) + "\n")
