"""General tool use: invented tools, paraphrased requests, results that decide."""

import random

from recipes.nano import pools, words
from recipes.nano.conversation import Argument, Conversation, ToolLine, dump
from recipes.nano.made_tools import (
    Made,
    World,
    dress,
    mention,
    refer,
    verb_phrase,
)
from recipes.nano.quoting import quote
from recipes.nano.values import value, word


def single(world: World, talk: Conversation, tool: Made | None = None) -> None:
    """One call, now and then after a missing fact was asked for or an error."""
    rng = world.rng
    tool = tool or world.tool()
    target = world.target(tool)
    phrase, arguments = world.request(tool, target)
    roll = rng.random()
    if roll < 0.08:
        noun = rng.choice(tool.nouns)
        talk.user(
            dress(
                rng,
                verb_phrase(
                    rng,
                    tool,
                    rng.choice(
                        (f"a {noun}", f"my {noun}", f"one {noun}", f"a certain {noun}")
                    ),
                ),
            )
        )
        talk.say(f"Which {noun}?")
        talk.user(
            rng.choice(("{}", "{}.", "it is {}", "the {n} is {}", "{}, please")).format(
                target, n=noun
            )
        )
        arguments = {tool.ref: target}
        for concept, argument in tool.extras:
            if argument.default is ...:
                chosen = value(rng, words.ARGUMENTS[concept][1])
                talk.say(f"What is the {argument.name}?")
                talk.user(
                    rng.choice(("{}", mention(rng, concept, "{}"))).replace(
                        "{}", str(chosen)
                    )
                )
                arguments[argument.name] = chosen
        arguments = {
            a.name: arguments[a.name]
            for a in tool.line.arguments
            if a.name in arguments
        }
    else:
        talk.user(dress(rng, phrase))
    if roll > 0.92:
        other = world.target(tool)
        talk.call(
            tool.line.name,
            arguments,
            rng.choice(
                (
                    f"error: no {tool.nouns[0]} {target}; did you mean {other}?",
                    f"error: {target} is now {other}",
                    f"error: unknown {tool.ref}, known: {other}",
                )
            ),
        )
        target, arguments = other, {**arguments, tool.ref: other}
    elif roll > 0.89:
        talk.call(
            tool.line.name,
            arguments,
            rng.choice(
                (
                    "error: busy, try again",
                    "error: timeout, try again",
                    "error: not ready, call again",
                )
            ),
        )
    result = world.outcome(tool, target)
    talk.call(tool.line.name, arguments, result)
    talk.say(rng.choice(pools.DONE))


def ask_field(world: World, talk: Conversation) -> None:
    """Look a record up and answer with one of its fields."""
    rng = world.rng
    tool = world.tool("show", extras=0)
    target = world.target(tool)
    result, fields = world.record(target)
    name = rng.choice(list(fields))
    where = refer(rng, tool, target, False)
    talk.user(
        dress(
            rng,
            rng.choice(
                (
                    f"what is the {name} of {where}",
                    f"tell me the {name} of {where}",
                    f"i need the {name} for {where}",
                    f"{where}: which {name} does it have",
                )
            ),
        )
    )
    talk.call(tool.line.name, {tool.ref: target}, result)
    talk.say(f"{fields[name]}.")


def lookup(world: World, talk: Conversation) -> None:
    """Find an object by some trait, then act on the id that was found."""
    rng = world.rng
    act = world.tool(extras=rng.choice((0, 0, 1)))
    find = find_tool(world, act)
    trait = rng.choice(("person", "email", "title", "city", "word"))
    wanted = str(value(rng, trait))
    phrase, arguments = world.request(act, "@")
    noun = rng.choice(act.nouns)
    described = rng.choice(
        (
            f"the {noun} of {wanted}",
            f"{wanted}'s {noun}",
            f"the {noun} for {wanted}",
            f"the {noun} that mentions {wanted}",
            f"the {noun} under {wanted}",
        )
    )
    phrase = verb_phrase(rng, act, described)
    for concept, argument in act.extras:
        if argument.name in arguments and concept in words.ARGUMENTS:
            phrase += rng.choice((" ", ", ")) + mention(
                rng, concept, arguments[argument.name]
            )
    talk.user(dress(rng, phrase))
    ids = [world.target(act) for _ in range(rng.choice((1, 1, 2, 3)))]
    people = [wanted] + [str(value(rng, trait)) for _ in ids[1:]]
    order = list(range(len(ids)))
    rng.shuffle(order)
    rows = [f"{ids[i]} {people[i]}" for i in order]
    if rng.random() < 0.4:
        rows = [dump({act.ref: ids[i], "for": people[i]}) for i in order]
    talk.call(find.name, {find.arguments[0].name: wanted}, "\n".join(rows))
    talk.call(act.line.name, {**arguments, act.ref: ids[0]}, world.outcome(act, ids[0]))
    talk.say(rng.choice(pools.DONE))


def find_tool(world: World, act: Made) -> ToolLine:
    """Offer a tool that finds objects of ``act``'s kind."""
    rng = world.rng
    noun = rng.choice(act.nouns)
    name = rng.choice(
        (
            "find_{}s",
            "search_{}s",
            "{}_search",
            "lookup_{}",
            "locate_{}",
            "query_{}s",
            "list_{}s",
        )
    ).format(noun)
    query = rng.choice(("query", "text", "term", "q", "name", "owner", "keyword"))
    description = rng.choice(
        (
            f"Find {noun}s by a text.",
            f"Search all {noun}s.",
            f"Look for {noun}s that match.",
            f"Return the ids of matching {noun}s.",
            f"List {noun}s of someone.",
        )
    )
    line = ToolLine(name, description, (Argument(query, "str"),))
    world.tools.append(Made("find", act.thing, act.nouns, "word", query, (), line))
    return line


def pick(world: World, talk: Conversation) -> None:
    """List objects, pick one by a number or a state, and act on it."""
    rng = world.rng
    act = world.tool(extras=0)
    noun = rng.choice(act.nouns)
    owner = str(value(rng, rng.choice(("person", "email", "id"))))
    find = find_tool(world, act)
    ids = [world.target(act) for _ in range(rng.randint(2, 4))]
    if rng.random() < 0.6:
        field = rng.choice(("amount", "price", "count", "size", "age"))
        numbers = rng.sample(range(1, 99), len(ids))
        high = rng.random() < 0.5
        best = numbers.index(max(numbers) if high else min(numbers))
        quality = rng.choice(
            (
                f"with the {'highest' if high else 'lowest'} {field}",
                f"with the {'most' if high else 'least'} {field}",
                f"whose {field} is {'largest' if high else 'smallest'}",
            )
        )
        rows = [f"{i} {field} {n}" for i, n in zip(ids, numbers, strict=True)]
    else:
        states = rng.sample(
            ("open", "pending", "closed", "done", "failed", "active", "broken"),
            len(ids),
        )
        best = rng.randrange(len(ids))
        quality = rng.choice(
            (
                f"that is {states[best]}",
                f"with status {states[best]}",
                f"in state {states[best]}",
            )
        )
        rows = [f"{i} {s}" for i, s in zip(ids, states, strict=True)]
    described = rng.choice(
        (
            f"the {noun} of {owner} {quality}",
            f"{owner}'s {noun} {quality}",
            f"that {noun} of {owner} {quality}",
        )
    )
    talk.user(dress(rng, verb_phrase(rng, act, described)))
    talk.call(find.name, {find.arguments[0].name: owner}, "\n".join(rows))
    talk.call(act.line.name, {act.ref: ids[best]}, world.outcome(act, ids[best]))
    talk.say(rng.choice(pools.DONE))


def condition(world: World, talk: Conversation) -> None:
    """Read a record; a number or a state of it decides whether to act."""
    rng = world.rng
    thing = world.thing()
    read = world.tool("show", thing, extras=0)
    act = world.tool(
        rng.choice(
            (
                "cancel",
                "refund",
                "delete",
                "approve",
                "escalate",
                "notify",
                "increase",
                "restart",
                "archive",
                "order",
                "lock",
            )
        ),
        thing,
        extras=0,
    )
    target = world.target(read)
    act_ref = act.ref
    field = rng.choice(
        ("amount", "count", "level", "total", "stock", "temperature", "load")
    )
    limit, actual = rng.randint(5, 95), rng.randint(1, 99)
    below = rng.random() < 0.5
    test = rng.choice(
        ("below", "less than", "under", "smaller than")
        if below
        else ("above", "more than", "over", "greater than")
    )
    holds = actual < limit if below else actual > limit
    where = refer(rng, read, target, False)
    act_phrase = verb_phrase(
        rng, act, rng.choice(("it", f"the {rng.choice(act.nouns)}"))
    )
    talk.user(
        dress(
            rng,
            rng.choice(
                (
                    f"if the {field} of {where} is {test} {limit}, {act_phrase}",
                    f"{act_phrase} if the {field} of {where} is {test} {limit}",
                    f"look at {where}: when {field} is {test} {limit}, {act_phrase}, otherwise leave it",
                )
            ),
        )
    )
    talk.call(
        read.line.name,
        {read.ref: target},
        rng.choice(
            (dump({"id": target, field: actual}), f"{target}: {field} {actual}")
        ),
    )
    if holds:
        talk.call(act.line.name, {act_ref: target}, world.outcome(act, target))
        talk.say(rng.choice(pools.DONE))
    else:
        talk.say(
            rng.choice(
                (f"No need, {field} is {actual}.", f"Left as it is: {field} {actual}.")
            )
        )


def refuse(world: World, talk: Conversation) -> None:
    """A request that no tool serves, or small talk: answer without a call."""
    rng = world.rng
    if rng.random() < 0.5:
        asked, answer = rng.choice(pools.SMALL_TALK).split(">")
        talk.user(asked)
        talk.say(answer)
    else:
        talk.user(dress(rng, rng.choice(pools.OFF_TOPIC)))
        talk.say(rng.choice(pools.REFUSALS))


def two(world: World, talk: Conversation) -> None:
    """Two requests in one message, done one after the other."""
    rng = world.rng
    first, second = world.tool(), world.tool()
    a, b = world.target(first), world.target(second)
    if rng.random() < 0.4 and first.kind == second.kind:
        b = a
    one, call_one = world.request(first, a)
    other, call_two = world.request(second, b)
    talk.user(
        dress(
            rng,
            rng.choice(
                (
                    f"{one} and then {other}",
                    f"{one}, then {other}",
                    f"first {one}, after that {other}",
                    f"{other}, but before that {one}",
                    f"{one} and {other}",
                    f"{one}. then {other}",
                    f"{one}. also {other}",
                )
            ),
        )
    )
    talk.call(first.line.name, call_one, world.outcome(first, a))
    talk.call(second.line.name, call_two, world.outcome(second, b))
    talk.say(rng.choice(pools.DONE))


ROUNDS = (
    (single, 46),
    (ask_field, 5),
    (lookup, 11),
    (pick, 8),
    (condition, 8),
    (refuse, 5),
    (two, 9),
    (quote, 12),
)


def conversation(rng: random.Random) -> Conversation:
    """Return one conversation of general tool use."""
    world = World(rng)
    system = rng.choice(pools.SYSTEMS).format(x=word(rng).capitalize())
    for rule in rng.sample(pools.RULES, rng.choice((0, 0, 0, 1, 2))):
        system = f"{system} {rule}".strip()
    talk = Conversation(system, [])
    rounds = [r for r, _ in ROUNDS]
    weights = [w for _, w in ROUNDS]
    for play in rng.choices(rounds, weights, k=rng.choice((1, 2, 2, 3))):
        play(world, talk)
    if rng.random() < 0.4 and world.tools:
        again = rng.choice(world.tools)
        if again.action in words.ACTIONS:
            single(world, talk, again)
    distract(world)
    rng.shuffle(world.tools)
    talk.tool_lines = [t.line.line() for t in world.tools]
    return talk


def distract(world: World) -> None:
    """Offer tools that nobody asks for: same object, same action, or neither."""
    rng = world.rng
    goal = max(len(world.tools), rng.randint(3, 8))
    while len(world.tools) < goal:
        kind, near = rng.random(), rng.choice(world.tools) if world.tools else None
        if near and kind < 0.5:
            world.tool(thing=near.thing if near.thing in words.OBJECTS else None)
        elif near and kind < 0.65 and near.action in words.ACTIONS:
            world.tool(action=near.action)
        else:
            world.tool()
