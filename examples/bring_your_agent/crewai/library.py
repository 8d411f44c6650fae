"""A library: a crew of one, with its own tools and books."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

LENT = {"Emma": "Ann"}


@tool("lend_book")
def lend_book(title: str, member: str) -> str:
    """Lend a book to a member."""
    LENT[title] = member
    return f"{member} has {title} now."


@tool("take_back")
def take_back(title: str) -> str:
    """Take a book back that was lent."""
    return f"{title} is back from {LENT.pop(title, 'nobody')}."


@tool("reserve_book")
def reserve_book(title: str, member: str) -> str:
    """Reserve a book for a member until it is back."""
    return f"{title} is reserved for {member}."


librarian = Agent(
    role="Librarian",
    goal="Do what members ask for.",
    backstory="You run the desk of a library.",
    llm=LLM(model="openai/gpt-4o-mini"),
    tools=[lend_book, take_back, reserve_book],
)
request = Task(
    description="A member says: {request}",
    expected_output="One sentence that says what was done.",
    agent=librarian,
)
crew = Crew(agents=[librarian], tasks=[request])

if __name__ == "__main__":
    print(crew.kickoff({"request": "Lend Emma to Tom."}))
