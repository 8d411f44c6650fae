"""The customer support scenario's training wording and tools, its rules at random.

Three shops in four are named with invented words, so that names are copied and not
remembered. Nothing of a held-out split is used.
"""

import asyncio
import json
import random
from functools import cache
from random import Random
from typing import Any

from agentgym.core.task import Split, Task
from agentgym.core.tools import Tool, ToolSpec, tool_specs
from agentgym.errors import ToolError
from agentgym.packs.customer_support.environment import SupportEnvironment
from agentgym.packs.customer_support.families import FAMILIES, SupportFamily
from agentgym.packs.customer_support.scenario import ROLE, SYSTEM_PROMPT
from agentgym.packs.customer_support.story import NAMES, SupportNames
from agentgym.packs.kit.tasks import Draft, Scene
from recipes.nano import pools
from recipes.nano.conversation import Argument, Conversation, ToolLine
from recipes.nano.customer_support_oracle import demonstrate
from recipes.nano.support_words import POLICIES
from recipes.nano.values import surname, text, word

SYSTEMS = (
    "You are the support agent of a shop.",
    "You help customers of a shop. Use the tools.",
    "Support desk. Be brief.",
    "You work at the help desk of {}.",
    "You help customers of {}.",
    "",
)
KINDS = {"string": "str", "integer": "int", "number": "float"}
FOLLOW = 0.4
"""How often a step is made that only a rule asks for."""
OBEYS = 0.75
"""How often the agent does what the customer asks for against the rules."""
SLIPS = 0.2
"""How often the first call with an id goes wrong, once or again and again."""
WEIGHTS = {1: 2.0, 2: 3.0, 3: 4.0}
FORBIDDEN = {
    "second_refund": "refund_order",
    "late_refund": "refund_order",
    "large_refund": "refund_order",
    "wrong_postcode": "cancel_order",
}
"""What an agent does that knows no rule where the rules say no."""


def invented(rng: Random) -> SupportNames:
    """Return a pool of words that no split uses."""
    known = {w.lower() for names in NAMES.values() for w in names.words()}

    def words(count: int) -> tuple[str, ...]:
        made = {word(rng) for _ in range(count)} - known
        return tuple(sorted(w for w in made if w.isalpha() and len(w) > 2))

    prefix = word(rng)[:3].lower()
    return SupportNames(
        first=tuple(w.capitalize() for w in words(8)),
        last=tuple(surname(rng) for _ in range(4)),
        domains=words(8),
        products=words(24),
        cities=(*rng.sample(pools.CITIES, 4), *(w.capitalize() for w in words(4))),
        streets=tuple(w.capitalize() for w in words(8)),
        subjects=tuple(text(rng).replace('"', "") for _ in range(4)),
        numbers=(rng.choice(("9999", "99999", "A-9999", f"{prefix}_9999", "AAA-99")),),
    )


@cache
def tool_lines() -> dict[str, str]:
    """Return the scenario's tools as the chat template prints them, by name."""
    return {spec.name: _line(spec).line() for spec in tool_specs(SupportEnvironment)}


def _line(spec: ToolSpec) -> ToolLine:
    arguments = tuple(
        Argument(name, _kind(schema), schema.get("default", ...))
        for name, schema in spec.parameters["properties"].items()
    )
    return ToolLine(spec.name, spec.description, arguments)


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return "|".join(schema["enum"])
    if "anyOf" in schema:
        return "|".join(_kind(o) for o in schema["anyOf"] if o["type"] != "null")
    return KINDS[schema["type"]]


def conversation(rng: random.Random) -> Conversation:
    """Return one conversation of a random family."""
    family = rng.choices(FAMILIES, [WEIGHTS[f.level] for f in FAMILIES])[0]
    names = invented(rng) if rng.random() < 0.75 else NAMES[Split.TRAIN]
    draft = family.draft(Scene(rng, Split.TRAIN, names, family.phrases))
    task = _task(family, draft, rng)
    if family.name in FORBIDDEN and rng.random() < OBEYS:
        task = _obeying(task, FORBIDDEN[family.name])
    played = asyncio.run(demonstrate(task, follow_rules=FOLLOW, rng=rng))
    talk = Conversation("", [])
    used: set[str] = set()
    slips = rng.random() < SLIPS
    _, *messages = played.messages
    if messages[-1]["role"] == "user":  # puzzled, because a rule was left out
        messages.pop()
    for message, after in zip(messages, [*messages[1:], None], strict=True):
        if message["role"] == "user":
            talk.user(message["content"])
        elif calls := message.get("tool_calls"):
            function = calls[0]["function"]
            used.add(function["name"])
            assert after is not None
            arguments = json.loads(function["arguments"])
            if slips and (wrong := _wrong(rng, arguments)):
                slips = False
                if _slip(talk, task, function["name"], wrong, rng):
                    break
            talk.call(function["name"], arguments, after["content"])
        elif message["role"] == "assistant":
            talk.say(message["content"])
    head(talk, rng, used)
    return talk


def _wrong(rng: Random, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with another id or email; empty if there is none."""
    names = [n for n in ("order_id", "customer_id", "email") if n in arguments]
    if not names:
        return {}
    right = arguments[names[0]]
    at = rng.randrange(len(right))
    other = rng.choice(
        (right[:at] + right[at + 1 :], text(rng).split()[0], f"{right}0")
    )
    return {**arguments, names[0]: other}


def _slip(
    talk: Conversation, task: Task, tool: str, args: dict[str, Any], rng: Random
) -> bool:
    """Let a call fail, maybe again and again; return whether that was the end."""
    environment = SupportEnvironment(
        task.initial_state, task.instruction, enforce_rules=False
    )
    times = rng.choice((1, 1, 1, 2, 2, 3))
    made = {t.spec.name: t for t in environment.tools()}[tool]
    try:
        asyncio.run(_run(made, args))
        return False
    except ToolError as error:
        for _ in range(times):
            talk.slip(tool, args, f"Error: {error}")
    finally:
        environment.close()
    given_up = times > 1 and rng.random() < 0.4
    if given_up:
        talk.say(rng.choice(pools.GIVEN_UP))
    return given_up


async def _run(tool: Tool, args: dict[str, Any]) -> str:
    return await tool(**args)


def head(talk: Conversation, rng: Random, used: set[str]) -> None:
    """Write the system turn: all tools in order, or some of them shuffled."""
    lines = tool_lines()
    if rng.random() < 0.35:
        talk.tool_lines = list(lines.values())
    else:
        others = [name for name in lines if name not in used]
        chosen = sorted([*used, *rng.sample(others, min(len(others), 4))])
        rng.shuffle(chosen)
        talk.tool_lines = [lines[name] for name in chosen]
    system = rng.choice(SYSTEMS).format(word(rng).capitalize())
    policies = rng.sample(POLICIES, rng.choice((0, 1, 2)))
    talk.system = " ".join([system, *policies]).strip()
    if rng.random() < 0.25:
        talk.system = SYSTEM_PROMPT
    elif rng.random() < 0.3:
        talk.system = ROLE


def _task(family: SupportFamily, draft: Draft, rng: Random) -> Task:
    return Task(
        id=f"corpus/{rng.random()}",
        split=Split.TRAIN,
        seed=0,
        family=family.name,
        level=family.level,
        instruction=draft.instruction,
        initial_state=draft.state,
        goal=draft.goal,
    )


def _obeying(task: Task, tool: str) -> Task:
    """Return a task whose plan does what was asked, whatever the rules say."""
    number = task.initial_state["orders"][-1][0]
    args = {"order_id": number}
    if tool == "refund_order":
        args["amount"] = task.initial_state["orders"][-1][3]
    plan = [s for s in task.goal["plan"] if s["tool"] != "escalate"]
    asked = {"tool": tool, "args": args, "request": 0}
    return task.model_copy(
        update={"goal": {**task.goal, "plan": [*plan, asked], "refuse": False}}
    )
