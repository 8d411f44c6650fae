"""A scenario whose user talks on, and a LangChain agent factory of a user's own."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelRetryMiddleware,
    after_model,
    before_model,
)
from langchain_core.messages import SystemMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from agentgym import Environment, Reward, Scenario, Split, Task, tool
from agentgym.core.tools import tool_specs
from agentgym.integrations.transport import speaking_as

TURNS = ["My name is Ada.", "In blue, please."]
"""What the user says after their first message, turn by turn."""


class Shop(Environment):
    """Writes down what it is told, and how the agent answered."""

    def __init__(self, replies: list[str]) -> None:
        self.replies = replies
        self.answers: list[str] = []
        self.notes: list[str] = []

    @tool
    def note(self, text: str) -> str:
        """Write something down."""
        self.notes.append(text)
        return "noted"

    def user_reply(self, message: str) -> str | None:
        self.answers.append(message)
        if self.replies == ["for ever"]:
            return "And?"
        said = len(self.answers) - 1
        return self.replies[said] if said < len(self.replies) else None


class ChattyScenario(Scenario):
    name = "chatty"
    description = "A user who talks on."
    difficulty = "beginner"
    estimated_time = "seconds"
    max_turns = 6

    def system_prompt(self) -> str:
        return "You take notes."

    def tools(self) -> list[Any]:
        return tool_specs(Shop)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="note",
                level=1,
                instruction="I want a lamp.",
                initial_state={"replies": TURNS if seed == 0 else ["for ever"]},
            )
            for number in range(count)
        ]

    def create_environment(self, task: Task) -> Shop:
        return Shop(task.initial_state["replies"])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Any
    ) -> Reward:
        assert isinstance(environment, Shop)
        told = {f"note {n}": 1.0 for n in environment.notes}
        heard = {f"answer {a}": 0.0 for a in environment.answers}
        return Reward(len(told) / 10, bool(told), {**told, **heard})


def make_agent(llm: Any, tools: list[Any]) -> Any:
    return create_agent(model=llm, tools=tools, system_prompt="You note.")


def make_hooked_agent(llm: Any, tools: list[Any]) -> Any:
    """Return an agent of four graph nodes a turn, whose model is tried again."""

    @before_model
    def before(state: Any, runtime: Any) -> None: ...

    @after_model
    def after(state: Any, runtime: Any) -> None: ...

    again = ModelRetryMiddleware(max_retries=1, initial_delay=0)
    hooks: list[AgentMiddleware[Any, Any, Any]] = [before, after, again]
    return create_agent(
        model=llm, tools=tools, system_prompt="You note.", middleware=hooks
    )


def make_sync_agent(llm: Any, tools: list[Any]) -> Any:
    """Return a graph as most people write it: nodes that are not async."""
    offered = {tool.name: tool for tool in tools}
    bound = llm.bind_tools(tools)

    def ask(state: MessagesState) -> dict[str, Any]:
        with speaking_as("clerk"):
            prompt = SystemMessage("You note.")
            return {"messages": [bound.invoke([prompt, *state["messages"]])]}

    def act(state: MessagesState) -> dict[str, Any]:
        return {
            "messages": [
                ToolMessage(offered[c["name"]].invoke(c["args"]), tool_call_id=c["id"])
                for c in state["messages"][-1].tool_calls
            ]
        }

    def more(state: MessagesState) -> str:
        return "act" if state["messages"][-1].tool_calls else END

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("act", act)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", more)
    graph.add_edge("act", "ask")
    return graph.compile()
