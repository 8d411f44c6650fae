"""The desk of a clinic: a LangGraph agent with its own tools, data and memory."""

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FREE = {"monday": ["09:00", "11:30"], "tuesday": ["14:00"], "friday": ["08:15"]}
BOOKED: dict[str, tuple[str, str]] = {"A100": ("monday", "10:00")}

PROMPT = "You work at the desk of a clinic. Use the tools; never make up a time."


@tool
def free_times(day: str) -> list[str]:
    """List the free times of a day of the week."""
    return FREE.get(day.lower(), [])


@tool
def book_visit(patient: str, day: str, time: str) -> str:
    """Book a visit for a patient at a time of a day."""
    number = f"A{101 + len(BOOKED)}"
    BOOKED[number] = (day, time)
    return f"{patient} has visit {number}, {day} at {time}."


@tool
def cancel_visit(visit: str) -> str:
    """Cancel a visit by its number."""
    day, time = BOOKED.pop(visit)
    return f"Visit {visit}, {day} at {time}, is cancelled."


@tool
def call_back(phone: str) -> str:
    """Ask a nurse to call a patient back."""
    return f"A nurse will call {phone}."


TOOLS = [free_times, book_visit, cancel_visit, call_back]
model = ChatOpenAI(model="gpt-4o-mini", temperature=0).bind_tools(TOOLS)


def desk(state: MessagesState) -> dict:
    """Ask the model what is to be done next."""
    return {"messages": [model.invoke([SystemMessage(PROMPT), *state["messages"]])]}


builder = StateGraph(MessagesState)
builder.add_node("desk", desk)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "desk")
builder.add_conditional_edges("desk", tools_condition)
builder.add_edge("tools", "desk")
graph = builder.compile(checkpointer=InMemorySaver())

if __name__ == "__main__":
    thread = {"configurable": {"thread_id": "demo"}}
    asked = {"messages": [("user", "Which times are free on Monday?")]}
    print(graph.invoke(asked, thread)["messages"][-1].content)
