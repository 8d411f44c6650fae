"""Invented tools, and requests for them in many wordings."""

import random
from dataclasses import dataclass
from typing import Any

from recipes.nano import pools, words
from recipes.nano.conversation import Argument, ToolLine, dump
from recipes.nano.values import PSEUDO, value

REF_NAMES = {
    "id": "{n}_id id {n} {n}_number reference",
    "num": "{n}_id id {n}_number number",
    "code": "{n}_code code {n} {n}_id",
    "hash": "{n}_hash hash {n} {n}_id",
    "path": "path file file_path filename {n}",
    "dir": "folder directory path dir {n}",
    "person": "name {n} person {n}_name",
    "email": "email mail {n}_email",
    "ident": "name {n} {n}_name target",
    "title": "title {n} {n}_title name",
    "name": "name {n} {n}_name",
    "host": "host {n} hostname target",
}
TYPES = {"int": "int", "float": "float", "bool": "bool"}
FIELDS = {
    "status": "enum:open,pending,closed,done,failed,active",
    "amount": "float",
    "owner": "person",
    "date": "date",
    "count": "int",
    "city": "city",
    "priority": "enum:low,medium,high",
    "color": "enum:red,green,blue,white",
    "code": "code",
    "total": "float",
    "level": "int",
    "email": "email",
}


@dataclass(frozen=True)
class Made:
    """A made tool: what it does to which object, and how it is called."""

    action: str
    thing: str
    nouns: tuple[str, ...]
    kind: str
    ref: str
    extras: tuple[tuple[str, Argument], ...]
    line: ToolLine


def thing_nouns(rng: random.Random, thing: str) -> tuple[str, ...]:
    """Return the nouns of a thing; an invented thing has one."""
    return (
        tuple(words.OBJECTS[thing][0].split()) if thing in words.OBJECTS else (thing,)
    )


def make_tool(
    rng: random.Random, action: str, thing: str, extras: int | None = None
) -> Made:
    """Make a tool for ``action`` on ``thing`` with random wording and arguments."""
    verbs, _ = words.ACTIONS[action]
    nouns = thing_nouns(rng, thing)
    kinds = (
        words.OBJECTS[thing][1].split()
        if thing in words.OBJECTS
        else ["id", "ident", "name"]
    )
    kind, noun, verb = rng.choice(kinds), rng.choice(nouns), rng.choice(verbs.split())
    style = rng.random()
    name = (
        f"{verb}_{noun}"
        if style < 0.8
        else f"{noun}_{verb}"
        if style < 0.92
        else f"{verb}{noun.capitalize()}"
    )
    ref = rng.choice(REF_NAMES[kind].split()).format(n=noun)
    arguments = [Argument(ref, "str")]
    count = rng.choice((0, 0, 0, 1, 1, 2)) if extras is None else extras
    chosen: list[tuple[str, Argument]] = []
    for concept in rng.sample(list(words.ARGUMENTS), count):
        names, shape, _ = words.ARGUMENTS[concept]
        label = rng.choice(names.split())
        if label in {a.name for a in arguments}:
            continue
        kind_name = (
            shape[5:].replace(",", "|")
            if shape.startswith("enum:")
            else TYPES.get(shape, "str")
        )
        default: Any = ...
        if shape == "bool":
            default = False
        elif rng.random() < 0.35:
            default = (
                None
                if rng.random() < 0.4 or shape not in ("int",)
                else rng.choice((5, 10, 20))
            )
        argument = Argument(label, kind_name, default)
        arguments.append(argument)
        chosen.append((concept, argument))
    arguments.sort(key=lambda a: a.default is not ...)
    return Made(
        action,
        thing,
        nouns,
        kind,
        ref,
        tuple(chosen),
        ToolLine(name, describe(rng, action, nouns), tuple(arguments)),
    )


def describe(rng: random.Random, action: str, nouns: tuple[str, ...]) -> str:
    """Return a one-sentence description of a tool."""
    verbs, idioms = words.ACTIONS[action]
    noun = rng.choice(nouns)
    article = rng.choice(("a", "the", "one", "a given"))
    if rng.random() < 0.7:
        text = f"{rng.choice(verbs.split())} {article} {noun}"
    else:
        text = rng.choice(idioms.split("|")).format(o=f"{article} {noun}", n=noun)
    text = text[0].upper() + text[1:]
    if rng.random() < 0.3:
        text += rng.choice(
            (
                " by its id",
                " of the company",
                " in the system",
                " and return the result",
                " for the user",
                " now",
            )
        )
    return text + "."


def refer(rng: random.Random, tool: Made, target: str, bare: bool) -> str:
    """Return how a request names the object ``target`` of ``tool``."""
    noun = rng.choice(tool.nouns)
    shown = target
    if tool.kind in ("ident", "path", "title", "dir") and rng.random() < 0.3:
        shown = rng.choice(("`{}`", '"{}"', "'{}'")).format(target)
    forms = [
        f"the {noun} {shown}",
        f"{noun} {shown}",
        f"the {shown} {noun}",
        f"our {noun} {shown}",
    ]
    if tool.kind in ("id", "num", "code", "hash"):
        forms += [
            f"the {noun} with id {shown}",
            f"{noun} number {shown}",
            f"{noun} #{shown}",
        ]
    if tool.kind in ("ident", "title", "name", "person"):
        forms += [
            f"the {noun} called {shown}",
            f"the {noun} named {shown}",
            f"the {noun} of {shown}",
        ]
    if bare:
        forms += [shown] * 4
    return rng.choice(forms)


def verb_phrase(rng: random.Random, tool: Made, object_phrase: str) -> str:
    """Return a request's verb phrase for ``tool`` on the object."""
    verbs, idioms = words.ACTIONS[tool.action]
    if rng.random() < 0.5:
        return f"{rng.choice(verbs.split())} {object_phrase}"
    return rng.choice(idioms.split("|")).format(o=object_phrase, n=tool.nouns[0])


def mention(rng: random.Random, concept: str, chosen: Any) -> str:
    """Return how a request states the value of an argument."""
    _, shape, mentions = words.ARGUMENTS[concept]
    if shape == "bool":
        yes, no = mentions.split("/")
        return rng.choice((yes if chosen else no).split("|"))
    shown = str(chosen)
    if shape == "text" or (shape in ("ident", "path") and rng.random() < 0.25):
        shown = rng.choice(('"{}"', '"{}"', "'{}'", "`{}`")).format(shown)
    return rng.choice(mentions.split("|")).format(shown)


def dress(rng: random.Random, phrase: str) -> str:
    """Put an opener and a closer around a request, and vary its case."""
    text = rng.choice(pools.OPENERS) + phrase + rng.choice(pools.CLOSERS)
    if rng.random() < 0.45:
        text = text[0].upper() + text[1:]
    return text + rng.choice(("", ".", ".", "!" if rng.random() < 0.2 else "?"))


class World:
    """One conversation in the making: its tools, and the rounds played so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tools: list[Made] = []

    def tool(
        self,
        action: str | None = None,
        thing: str | None = None,
        extras: int | None = None,
    ) -> Made:
        """Make a tool unlike all others of the conversation, and offer it."""
        for _ in range(30):
            a = action or self.rng.choice(list(words.ACTIONS))
            t = thing or self.thing()
            made = make_tool(self.rng, a, t, extras)
            clash = any(
                o.line.name == made.line.name
                or (o.action == a and set(o.nouns) & set(made.nouns))
                for o in self.tools
            )
            if not clash:
                break
            thing = None if _ > 10 else thing
        self.tools.append(made)
        return made

    def thing(self) -> str:
        """Return an object of the world, sometimes an invented one."""
        if self.rng.random() < 0.1:
            return self.rng.choice(PSEUDO)
        return self.rng.choice(list(words.OBJECTS))

    def request(self, tool: Made, target: str) -> tuple[str, dict[str, Any]]:
        """Return a request for one call of ``tool`` and the call's arguments."""
        rng = self.rng
        bare = sum(o.action == tool.action for o in self.tools) == 1
        parts, arguments = [], {tool.ref: target}
        for concept, argument in tool.extras:
            if argument.default is not ... and rng.random() < 0.5:
                continue
            chosen = (
                rng.random() < 0.6
                if argument.type == "bool"
                else value(rng, words.ARGUMENTS[concept][1])
            )
            if (
                argument.type == "bool"
                and not chosen
                and argument.default is False
                and rng.random() < 0.7
            ):
                continue
            arguments[argument.name] = chosen
            parts.append(mention(rng, concept, chosen))
        rng.shuffle(parts)
        ordered = {
            a.name: arguments[a.name]
            for a in tool.line.arguments
            if a.name in arguments
        }
        front = [parts.pop()] if parts and rng.random() < 0.15 else []
        phrase = verb_phrase(rng, tool, refer(rng, tool, target, bare))
        joined = f"{front[0]}, {phrase}" if front else phrase
        for part in parts:
            joined += rng.choice((" ", " ", ", ")) + part
        return joined, ordered

    def target(self, tool: Made) -> str:
        """Return a fresh object for ``tool``."""
        return str(value(self.rng, tool.kind))

    def outcome(self, tool: Made, target: str) -> str:
        """Return what a successful call answers."""
        rng = self.rng
        if tool.action in ("show", "summarize", "track", "measure", "count", "check"):
            return self.record(target)[0]
        return rng.choice(
            (
                "ok",
                "done",
                f"{target}: ok",
                f"{rng.choice(tool.nouns)} {target} done",
                '{"ok": true}',
                "success",
                "1 changed",
            )
        )

    def record(self, target: str) -> tuple[str, dict[str, Any]]:
        """Return a record as a tool prints it, and its fields."""
        rng = self.rng
        fields = {
            name: value(rng, FIELDS[name])
            for name in rng.sample(list(FIELDS), rng.randint(2, 4))
        }
        if rng.random() < 0.5:
            return dump({"id": target, **fields}), fields
        return f"{target}: " + ", ".join(f"{k} {v}" for k, v in fields.items()), fields
