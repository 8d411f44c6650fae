"""The same agent in Python, with Anthropic's client (pip install anthropic).

It knows nothing of AgentGym: the client reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY.
"""

import os
import sys

from anthropic import Anthropic

SHELF = {"Dune": 3, "Emma": 0, "Walden": 7, "Beloved": 2, "Candide": 5, "Hamlet": 1}
TITLE, COPIES = {"type": "string"}, {"type": "integer"}
TOOLS = [
    {
        "name": "stock",
        "description": "Look up how many copies of a book are in stock.",
        "input_schema": {
            "type": "object",
            "properties": {"title": TITLE},
            "required": ["title"],
        },
    },
    {
        "name": "order",
        "description": "Order copies of a book.",
        "input_schema": {
            "type": "object",
            "properties": {"title": TITLE, "copies": COPIES},
            "required": ["title", "copies"],
        },
    },
]


def stock(title: str) -> str:
    """Look up a book."""
    return f"{SHELF[title]} copies"


def order(title: str, copies: int) -> str:
    """Order a book."""
    return f"ordered {copies} of {title}"


def run(name: str, arguments: dict) -> dict:
    """Return the result of a tool, or its error, for the model."""
    try:
        return {"content": {"stock": stock, "order": order}[name](**arguments)}
    except (KeyError, TypeError) as error:
        return {"content": repr(error), "is_error": True}


def main() -> None:
    """Answer the request on standard input."""
    client = Anthropic()
    messages = [{"role": "user", "content": sys.stdin.read()}]
    while True:
        answer = client.messages.create(
            model=os.environ["ANTHROPIC_MODEL"],
            max_tokens=160,
            system="You work in a bookshop. Use the tools.",
            messages=messages,
            tools=TOOLS,
        )
        messages.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": b.id, **run(b.name, b.input)}
            for b in answer.content
            if b.type == "tool_use"
        ]
        if not results:
            sys.stdout.write("".join(b.text for b in answer.content))
            return
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
