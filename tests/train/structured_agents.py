"""Agents whose models answer in a form, as the frameworks' own pages write them."""

from typing import Any, Literal

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel, Field

model = ChatOpenAI(model="gpt-4o-mini", api_key=lambda: "none")


@tool
def retrieve_posts(topic: str) -> str:
    """Search the blog posts and return what they say about a topic."""
    return f"The posts say that {topic} is hard."


class GradeDocuments(BaseModel):
    """Grade documents by whether they are relevant to the question."""

    binary_score: str = Field(
        description="Relevance score: 'yes' if relevant, or 'no' if not relevant"
    )


def generate_query_or_respond(state: MessagesState) -> dict[str, Any]:
    """Retrieve, or answer at once."""
    return {"messages": [model.bind_tools([retrieve_posts]).invoke(state["messages"])]}


def grade_documents(
    state: MessagesState,
) -> Literal["generate_answer", "rewrite_question"]:
    """Say whether the documents fit the question."""
    question, context = state["messages"][0].text, state["messages"][-1].text
    asked = f"Here is the document: {context}\nHere is the question: {question}"
    grader = model.with_structured_output(GradeDocuments)
    said: Any = grader.invoke([{"role": "user", "content": asked}])
    return "generate_answer" if said.binary_score == "yes" else "rewrite_question"


def rewrite_question(state: MessagesState) -> dict[str, Any]:
    """Ask in other words."""
    said = model.invoke([HumanMessage(f"Improve: {state['messages'][0].text}")])
    return {"messages": [HumanMessage(said.text)]}


def generate_answer(state: MessagesState) -> dict[str, Any]:
    """Answer from the documents."""
    return {"messages": [model.invoke(state["messages"])]}


def _rag() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node(generate_query_or_respond)
    graph.add_node("retrieve", ToolNode([retrieve_posts]))
    graph.add_node(rewrite_question)
    graph.add_node(generate_answer)
    graph.add_edge(START, "generate_query_or_respond")
    graph.add_conditional_edges(
        "generate_query_or_respond", tools_condition, {"tools": "retrieve", END: END}
    )
    graph.add_conditional_edges("retrieve", grade_documents)
    graph.add_edge("generate_answer", END)
    graph.add_edge("rewrite_question", "generate_query_or_respond")
    return graph.compile()


rag = _rag()
