"""A bookshop's agent as a program: it asks over HTTP, and runs its own tools.

Further arguments make it misbehave, by the words in the request.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

STOCK = {"Dune": 3, "Emma": 0}


def stock(title: str) -> str:
    if title not in STOCK:
        return f"Error: there is no book {title!r}."
    return f"{STOCK[title]} copies"


def order(title: str, copies: int) -> str:
    return f"ordered {copies} of {title}"


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def described(name: str, text: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name, "description": text, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [
    described("stock", "Copies of a book in stock.", title=TEXT),
    described("order", "Order copies of a book.", title=TEXT, copies=NUMBER),
]


def ask(messages: list[Any], **more: Any) -> dict[str, Any]:
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, **more}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
    )
    with urllib.request.urlopen(request) as answer:
        said: dict[str, Any] = json.load(answer)["choices"][0]["message"]
    return said


def called(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
        found = {"stock": stock, "order": order}[function["name"]](**arguments)
    except Exception as error:  # noqa: BLE001 - as an agent does, for the model to read
        found = f"Error: {error!r}"
    return {"role": "tool", "tool_call_id": call["id"], "content": found}


def serve(request: str) -> str:
    messages: list[Any] = [{"role": "user", "content": request}]
    while True:
        said = ask(messages, tools=TOOLS)
        messages.append(said)
        calls = said.get("tool_calls")
        if not calls:
            return said["content"] or ""
        messages += map(called, calls)


def post(reward: Any) -> None:
    request = urllib.request.Request(
        os.environ["AGENTGYM_REWARD_URL"], json.dumps({"reward": reward}).encode()
    )
    urllib.request.urlopen(request).read()


def take_tasks() -> None:
    """Attempt a task a line, as a program does that is started once for many."""
    for line in sys.stdin:
        task = json.loads(line)
        os.environ.update(task["variables"])
        os.chdir(task["folder"])
        try:
            said = {"answer": attempt(task["instruction"])}
        except Exception as error:  # noqa: BLE001 - the next task has its own chance
            said = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def main() -> None:
    if "--tasks" in sys.argv:
        take_tasks()
    else:
        request, end, _ = sys.stdin.read().partition("\n")
        assert end, "a line without an end, of which Node's readline makes nothing"
        sys.stdout.write(attempt(request))


def attempt(request: str) -> str:
    if "ends the process" in request:
        os._exit(7)
    if "names the process" in request:
        serve(request)
        return str(os.getpid())
    if "asks no model" in request:
        return "Done."
    answer = serve(request)
    if "prints nothing" in request:
        return ""
    if "exits" in request:
        raise ValueError("no such shelf")
    if "loses its connection" in request:
        raise ConnectionError("the shop's server hung up")
    if "chats" in request:
        input("Anything else? ")
    if "floods" in request:
        while True:
            sys.stdout.write("x" * 65536)
    if "never ends" in request:
        time.sleep(600)
    if "holds much" in request:
        held = [os.urandom(1 << 20) * 60 for _ in range(4)]
        time.sleep(600)
        del held
    if "leaves children" in request:
        for _ in range(3):
            subprocess.Popen(["sleep", "600"], start_new_session=True)
    if "posts" in request:
        post(0.25)
    Path("answer.txt").write_text(answer)
    return answer


if __name__ == "__main__":
    main()
