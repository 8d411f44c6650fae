"""Requests for three LangGraph apps of three or four tools, as files of tasks."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Hana", "Jon", "Kim", "Liv", "Mia")
_GENRES = ("sci-fi", "comedy", "horror", "western", "romance", "animation", "crime")
_SORTS = ("old", "new", "short", "long", "French", "silent", "famous", "quiet")


@dataclass(frozen=True)
class App:
    """An app, and what its users ask.

    Attributes:
        agent: The graph, as ``module:name``.
        folder: Where its module is: below the examples, or in a checkout.
        source: The repository of an app that is not ours.
        asked: Requests by the tool that they need; the last of each is held out.
        takes: The arguments of each tool that a request decides.
        drawn: Returns values for the requests.
    """

    agent: str
    folder: str
    source: str
    asked: dict[str, tuple[str, ...]]
    takes: dict[str, tuple[str, ...]]
    drawn: Callable[[random.Random], dict[str, Any]]


def _of_clinic(rng: random.Random) -> dict[str, Any]:
    return {
        "day": rng.choice(_DAYS),
        "patient": f"{rng.choice(_NAMES)} {rng.choice(_NAMES)}son",
        "time": f"{rng.randrange(8, 18):02}:{rng.choice(('00', '15', '30'))}",
        "visit": f"A{rng.randrange(100, 1000)}",
        "phone": f"555 {rng.randrange(1000, 10000)}",
    }


def _of_arithmetic(rng: random.Random) -> dict[str, Any]:
    return {"a": rng.randrange(2, 1000), "b": rng.randrange(2, 100)}


def _of_helper(rng: random.Random) -> dict[str, Any]:
    return {
        "latitude": rng.randrange(-600, 600) / 10,
        "longitude": rng.randrange(-1500, 1500) / 10,
        "user_id": f"{rng.choice(_NAMES).lower()}{rng.randrange(10, 100)}",
        "sort": rng.choice(_SORTS),
        "genre": rng.choice(_GENRES),
    }


APPS = {
    "clinic": App(
        "clinic:graph",
        "examples/bring_your_agent/langgraph",
        "",
        {
            "free_times": (
                "What is free on {day}?",
                "Do you have any time left on {day}?",
                "I would like to come on {day}: when could I?",
                "Please look up the open slots of {day}.",
            ),
            "book_visit": (
                "Book {patient} for {day} at {time}.",
                "{patient} would like to come on {day} at {time}.",
                "Put {patient} down for {time} on {day}, please.",
                "I need an appointment on {day}, {time}, for {patient}.",
            ),
            "cancel_visit": (
                "Cancel visit {visit}.",
                "Visit {visit} has to be called off.",
                "I cannot come, my visit is {visit}.",
                "Please take {visit} out of the calendar.",
            ),
            "call_back": (
                "Can a nurse call me on {phone}?",
                "I would like to be called back: {phone}.",
                "Please ring {phone} when a nurse has a minute.",
                "My number is {phone}, I need to talk to a nurse.",
            ),
        },
        {
            "free_times": ("day",),
            "book_visit": ("patient", "day", "time"),
            "cancel_visit": ("visit",),
            "call_back": ("phone",),
        },
        _of_clinic,
    ),
    "arithmetic": App(
        "agent:graph",
        "module-1/studio",
        "langchain-ai/langchain-academy",
        {
            "add": (
                "What is {a} plus {b}?",
                "Add {a} and {b}.",
                "I have {a} euros and get {b} more. How many is that?",
                "Please tell me the sum of {a} and {b}.",
            ),
            "multiply": (
                "What is {a} times {b}?",
                "Multiply {a} by {b}.",
                "{a} boxes have {b} screws each. How many screws are there?",
                "Please tell me the product of {a} and {b}.",
            ),
            "divide": (
                "What is {a} divided by {b}?",
                "Divide {a} by {b}.",
                "We share {a} euros among {b} people. How much does each get?",
                "Please tell me the quotient of {a} and {b}.",
            ),
        },
        dict.fromkeys(("add", "multiply", "divide"), ("a", "b")),
        _of_arithmetic,
    ),
    "helper": App(
        "agents.101.agent:agent",
        "",
        "langchain-ai/langgraph-101",
        {
            "get_weather": (
                "What is the weather at latitude {latitude}, longitude {longitude}?",
                "How warm is it at {latitude}, {longitude}?",
                "I am at {latitude}, {longitude}. Do I need a coat?",
                "Please check the weather for the point {latitude}, {longitude}.",
            ),
            "get_user_preferences": (
                "What does user {user_id} like?",
                "Which preferences has {user_id} saved?",
                "I am {user_id}. What do you know about my taste?",
                "Please look up what {user_id} prefers.",
            ),
            "book_recommendation": (
                "Recommend me a {sort} {genre} movie.",
                "Which {sort} {genre} film should I watch?",
                "I feel like {genre} tonight, something {sort}. What is good?",
                "Please suggest something {sort} to watch; it has to be {genre}.",
            ),
        },
        {
            "get_weather": ("latitude", "longitude"),
            "get_user_preferences": ("user_id",),
            "book_recommendation": ("genre",),
        },
        _of_helper,
    ),
}


@dataclass(frozen=True)
class Need:
    """The call that a request needs; of its arguments, each of the values is right."""

    tool: str
    args: dict[str, list[Any]]
    split: str


def needs_of(app: App) -> dict[str, Need]:
    """Return 120 requests with what they need; 24 are held out, worded otherwise."""
    rng = random.Random(0)
    made: dict[str, Need] = {}
    for split, end in (("train", 84), ("validation", 96), ("test", 120)):
        while len(made) < end:
            tool = list(app.asked)[len(made) % len(app.asked)]
            *known, held_out = app.asked[tool]
            values = app.drawn(rng)
            words = held_out if split == "test" else rng.choice(known)
            if "patient" in values:
                words = rng.choice(("", "Hello! ", "{patient} here. ")) + words
            args = {name: [values[name]] for name in app.takes[tool]}
            if "day" in args:
                args["day"].append(values["day"].lower())
            made.setdefault(words.format(**values), Need(tool, args, split))
    return made


def tasks_file(app: App, path: Path, *, has_calls: bool = True) -> Path:
    """Write the requests, with the calls that they need unless :func:`check` scores."""
    lines: list[dict[str, Any]] = []
    for asked, need in needs_of(app).items():
        lines.append({"instruction": asked, "split": need.split})
        if has_calls:
            args = {name: {"one_of": right} for name, right in need.args.items()}
            lines[-1]["expect"] = [{"tool": need.tool, "args": args}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


@cache
def _all_needs() -> dict[str, Need]:
    return {k: need for app in APPS.values() for k, need in needs_of(app).items()}


def check(task: Any, calls: Any, state: Any) -> bool:
    """Return whether the needed call was made: all that a user's own check knows."""
    need = _all_needs()[task.instruction]
    return any(
        call.name == need.tool
        and all(
            str(call.arguments.get(name)) in map(str, right)
            for name, right in need.args.items()
        )
        for call in calls
    )
