"""The desk of a museum: a ToolCallingAgent of smolagents with three tools."""

from smolagents import OpenAIModel, ToolCallingAgent, tool

ROOMS = {"Monet": 3, "Klee": 7, "Degas": 5}


@tool
def find_room(painter: str) -> str:
    """Look up the room of a painter.

    Args:
        painter: The painter's name.
    """
    return f"Room {ROOMS.get(painter, 0)}"


@tool
def sell_tickets(day: str, count: int) -> str:
    """Sell tickets.

    Args:
        day: The day of the visit.
        count: How many tickets.
    """
    return f"{count} tickets for {day}."


@tool
def book_guide(day: str, language: str) -> str:
    """Book a guide.

    Args:
        day: The day of the tour.
        language: The language of the tour.
    """
    return f"A guide for {day}, in {language}."


desk = ToolCallingAgent(
    [find_room, sell_tickets, book_guide],
    OpenAIModel("gpt-5-mini"),
    name="desk",
    description="Answers visitors.",
)

if __name__ == "__main__":
    print(desk.run("Where is Monet?"))
