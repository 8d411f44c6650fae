"""A post office: an agent of Google ADK that hands over to another."""

from google.adk.agents import Agent

PARCELS = {"P100": "in Berlin", "P200": "on its way", "P300": "delivered"}


def track_parcel(number: str) -> str:
    """Look up where a parcel is."""
    return f"{number} is {PARCELS.get(number, 'unknown')}."


def buy_stamps(count: int) -> str:
    """Sell stamps."""
    return f"{count} stamps."


def redirect_mail(name: str, city: str) -> str:
    """Send a person's mail to another city."""
    return f"The mail of {name} goes to {city}."


movers = Agent(
    name="movers",
    model="gemini-2.5-flash",
    description="Redirects the mail of people who move.",
    instruction="You redirect mail. Use the tool, then answer shortly.",
    tools=[redirect_mail],
)
root_agent = Agent(
    name="post",
    model="gemini-2.5-flash",
    instruction="You are the desk of a post office. Use the tools.",
    tools=[track_parcel, buy_stamps],
    sub_agents=[movers],
)
