"""Rounds that quote or change one line of a text exactly."""

from recipes.nano import pools, words
from recipes.nano.conversation import Argument, Conversation, ToolLine
from recipes.nano.made_tools import Made, World, dress
from recipes.nano.values import code_line, ident, module, path, word


def quote(world: World, talk: Conversation) -> None:
    """Read a text, then change or quote one line of it exactly."""
    rng = world.rng
    read, change = text_tools(world)
    where, lines = path(rng), module(rng)
    solid = [
        i for i, line in enumerate(lines) if line.strip() and lines.count(line) == 1
    ]
    if not solid:
        return
    index = rng.choice(solid)
    old = lines[index].strip()
    new = (
        code_line(rng)
        if rng.random() < 0.6
        else old.replace(old.split()[-1], word(rng))
    )
    verb = rng.choice(words.ACTIONS["update"][0].split())
    known = rng.random()
    if known < 0.45:
        old, new = rng.choice(
            (
                (old, new),
                *[(w, ident(rng)) for w in old.split() if w.isidentifier()][:2],
            )
        )
        ask = rng.choice(
            (
                "in {p}, {v} `{o}` to `{n}`",
                "{v} `{o}` in {p} so that it says `{n}`",
                "replace `{o}` with `{n}` in {p}",
                "{p} should say `{n}` instead of `{o}`",
                "swap `{o}` for `{n}` in {p}",
                "where {p} has `{o}`, put `{n}`",
                "{o} must become {n} in {p}",
                "turn `{o}` into `{n}` in {p}",
                "substitute `{n}` for `{o}` in {p}",
                "change {o} to {n} in file {p}",
            )
        )
        read_first = rng.random() < 0.4
    else:
        number = index + 1
        ask = rng.choice(
            (
                "in {p}, {v} line {i} to `{n}`",
                "line {i} of {p} should be `{n}`",
                "make line {i} of {p} say `{n}`",
                "put `{n}` where line {i} of {p} is now",
                "rewrite line {i} in {p} as `{n}`",
            )
        )
        if (
            old.split()[0] in ("def", "return", "if", "for")
            and rng.random() < 0.4
            and sum(line.strip().startswith(old.split()[0] + " ") for line in lines)
            == 1
        ):
            ask = rng.choice(
                (
                    "the {k} line of {p} should be `{n}`",
                    "make the {k} in {p} `{n}`",
                    "fix the {k} line in {p}: it should read `{n}`",
                )
            )
        ask = ask.replace("{i}", str(number)).replace("{k}", old.split()[0])
        read_first = True
    talk.user(
        dress(
            rng,
            ask.replace("{p}", where)
            .replace("{v}", verb)
            .replace("{o}", old)
            .replace("{n}", new),
        )
    )
    if read_first:
        talk.call(read.line.name, {read.ref: where}, "\n".join(lines))
    names = [a.name for a in change.line.arguments]
    talk.call(
        change.line.name,
        dict(zip(names, (where, old, new), strict=True)),
        rng.choice(("ok", f"changed {where}", "1 replacement", f"wrote {where}")),
    )
    talk.say(rng.choice(pools.DONE))


def text_tools(world: World) -> tuple[Made, Made]:
    """Offer a reader and a replacer of texts."""
    rng = world.rng
    read = world.tool("show", "file", extras=0)
    if read.kind != "path":
        read = Made(
            read.action, read.thing, read.nouns, "path", read.ref, (), read.line
        )
    verb = rng.choice(
        "update edit change modify patch replace_in rewrite amend swap substitute".split()
    )
    old, new = rng.choice(
        (
            ("old", "new"),
            ("before", "after"),
            ("find", "replace"),
            ("old_text", "new_text"),
            ("search", "replacement"),
            ("from_text", "to_text"),
        )
    )
    line = ToolLine(
        f"{verb}_{rng.choice(('file', 'text', 'document', 'source', 'page'))}",
        rng.choice(
            (
                "Replace a text with another.",
                "Change one passage.",
                "Put new text where the old one was.",
                "Swap a piece of text.",
                "Edit by exact replacement.",
            )
        ),
        (
            Argument(rng.choice(("path", "file", "name")), "str"),
            Argument(old, "str"),
            Argument(new, "str"),
        ),
    )
    change = Made("replace", "file", ("file",), "path", "path", (), line)
    world.tools.append(change)
    return read, change
