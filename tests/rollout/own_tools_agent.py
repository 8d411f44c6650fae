"""An agent with some tools of a scenario's names, and some of its own."""

from pathlib import Path

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

MAILS: list[str] = []


@tool
def list_files() -> list[str]:
    """List the files of the project."""
    return ["its own"]


@tool
def read_file(path: str, lines: int = 100) -> str:
    """Read a file."""
    return f"its own {path} {lines}"


@tool
def send_mail(to: str, urgent: bool) -> str:
    """Send a mail."""
    MAILS.append(to)
    return f"sent to {to}"


@tool
def page_me(file: str) -> str:
    """Page the author, by a file."""
    if Path(file).is_absolute():  # a made up name would land in the checkout
        Path(file).write_text("paged")
    return "paged"


model = ChatOpenAI(model="gpt-4o-mini")
graph = create_agent(model, [list_files, read_file, send_mail, page_me])
