"""The coding scenario's training wording and tools, its rules followed at random.

Every second project is named with invented words, so that names are copied and not
remembered. Nothing of a held-out split is used.
"""

import asyncio
import builtins
import contextlib
import keyword
import random
import re
from functools import cache
from random import Random

from agentgym.core.task import Split
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.errors import AgentGymError
from agentgym.packs.coding.environment import CodingEnvironment
from agentgym.packs.coding.families import FAMILIES, ProjectFamily
from agentgym.packs.coding.names import NAMES, Names
from agentgym.packs.coding.scenario import ROLE, SYSTEM_PROMPT
from agentgym.packs.kit.tasks import Draft, Scene, Step, plan_of
from agentgym.sandbox import Sandbox, SandboxConfig
from recipes.nano import pools
from recipes.nano.conversation import Argument, Conversation, ToolLine
from recipes.nano.values import PSEUDO, spliced, woven

SYSTEMS = (
    "You are a coding assistant.",
    "You work on a small Python project with tools.",
    "You are a software engineer. Use the tools.",
    "Help with this Python project.",
    "You are a careful programmer with tools.",
    "",
)
RULES = (
    "Read a file before you edit it.",
    "Read a script before you run it.",
    "Run the tests after an edit.",
    "Never change a file under tests/.",
)
KINDS = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}
DEFAULTS = {
    "list_files": {"path": "."},
    "run_tests": {"path": "tests"},
    "run_script": {"args": ""},
}
READS = 0.15
"""How often a file is read before it is edited or run, although no rule is known."""
TESTS_AFTER = 0.15
"""How often the tests are run after an edit."""
SLIPS = 0.25
"""How often something goes wrong, once or again and again, before it is put right."""
WEIGHTS = {1: 4.0, 2: 6.0, 3: 4.0}


def invented(rng: Random) -> Names:
    """Return a pool of words that neither training nor validation uses.

    It knows nothing of the test pools, so that :mod:`recipes.nano.blind` can tell what
    this generator makes without them; the corpus's filter removes what hits them.
    """
    known = {w for s in (Split.TRAIN, Split.VALIDATION) for w in NAMES[s].words()}
    known |= {*dir(builtins), *keyword.kwlist, "clas", "tests", "sys"}
    strange = [spliced(rng) for _ in range(40)]
    source = [
        *strange,
        *rng.sample(PSEUDO, 20),
        *rng.sample(pools.PLAIN, 12),
        *rng.sample(pools.CODE_WORDS, 12),
    ]
    pool = sorted({w for w in source if not known & {w, w + "s"}})
    rng.shuffle(pool)
    for index, word in enumerate(pool):
        if word in strange[:30]:
            made = woven(word, pool[index - 1] if word in strange[:6] else "")
            pool[index] = word if {made, made + "s"} & {*known, *pool} else made
    return Names(
        packages=tuple(pool[:6]),
        nouns=tuple(pool[6:30]),
        adjectives=(*pool[30:36], *rng.sample(NAMES[Split.TRAIN].adjectives, 4)),
        parameters=tuple(zip(pool[36:44], pool[44:52], strict=True)),
        lists=tuple(w + "s" for w in pool[52:56]),
    )


@cache
def tool_lines() -> dict[str, str]:
    """Return the scenario's tools as the chat template prints them, by name."""
    return {spec.name: _line(spec).line() for spec in tool_specs(CodingEnvironment)}


def _line(spec: ToolSpec) -> ToolLine:
    arguments = tuple(
        Argument(name, KINDS[schema["type"]], schema.get("default", ...))
        for name, schema in spec.parameters["properties"].items()
    )
    return ToolLine(spec.name, spec.description, arguments)


@cache
def sandbox() -> Sandbox:
    """Return where tests and scripts run: all of them are the generator's own."""
    return Sandbox(SandboxConfig(concurrency=1, unsafe_local_exec=True))


class Session:
    """One conversation with a live environment behind its tools."""

    def __init__(self, rng: Random, draft: Draft, enforce: bool) -> None:
        self.rng, self.draft = rng, draft
        self.plan, self.files = plan_of(draft.goal), draft.state["files"]
        self.env = CodingEnvironment(self.files, sandbox(), enforce_rules=enforce)
        self.tools = {t.spec.name: t for t in self.env.tools()}
        self.talk = Conversation("", [])
        self.used: set[str] = set()
        self.slips = rng.random() < SLIPS

    def call(self, tool: str, args: dict[str, str]) -> bool:
        """Call a tool; return whether it ran."""
        self.used.add(tool)
        try:
            result = asyncio.run(_run(self.tools[tool], args))
        except AgentGymError as error:
            self.talk.call(tool, args, f"Error: {error}")
            return False
        self.talk.call(tool, args, result)
        return True

    def step(self, step: Step) -> bool:
        """Make one call of the plan, in one of its right forms.

        Raises:
            GivenUp: It went wrong again and again.
        """
        if self.slips and self.rng.random() < 0.6:
            self.slips = False
            slip(self, step)
        args = dict(self.rng.choice([step.args, step.args, *step.others]))
        if self.rng.random() < 0.85:
            default = DEFAULTS.get(step.tool, {})
            args = {k: v for k, v in args.items() if default.get(k) != v}
        return self.call(step.tool, args)


async def _run(tool: object, args: dict[str, str]) -> str:
    return await tool(**args)  # type: ignore[operator, no-any-return]


class GivenUp(Exception):
    """The agent says that it failed, and stops."""


def slip(session: Session, step: Step) -> None:
    """Make a call wrongly, maybe again and again: what follows is what is learned.

    A policy copies what it did before. It has to have seen that after an error it does
    something else: the right call, or, after several, the truth.

    Raises:
        GivenUp: At times, if the call failed more than once.
    """
    rng = session.rng
    tool, args = wrong(rng, step)
    times = rng.choice((1, 1, 1, 2, 2, 3, 4))
    session.used.add(tool)
    for _ in range(times):
        try:
            asyncio.run(_run(session.tools[tool], args))
        except AgentGymError as error:
            session.talk.slip(tool, args, f"Error: {error}")
        else:
            return
    if times > 1 and rng.random() < 0.4:
        session.talk.say(rng.choice(pools.GIVEN_UP))
        raise GivenUp


def wrong(rng: Random, step: Step) -> tuple[str, dict[str, str]]:
    """Return a step's call with one thing wrong, or a reader's call instead of it."""
    args = dict(step.args)
    if "old" in args and rng.random() < 0.5:
        at = rng.randrange(len(args["old"]))
        letter = rng.choice("aeiou")  # one left out might still be in the file
        args["old"] = args["old"][:at] + letter + args["old"][at:]
    elif "path" in args:
        args["path"] = wrong_path(rng, args["path"])
    elif "query" in args:
        args["query"] = f"{args['query']} {rng.choice(pools.PLAIN)}"
    if step.tool != "read_file" and "path" in args and rng.random() < 0.3:
        return "read_file", {"path": args["path"]}
    return step.tool, args


def wrong_path(rng: Random, path: str) -> str:
    """Return a path that is a little wrong, as a hasty reader makes it."""
    folder, _, file = path.rpartition("/")
    word = rng.choice(pools.PLAIN)
    stem = file.removesuffix(".py")
    cut = rng.randint(1, max(1, len(stem) - 1))
    choices = [
        f"{word}/{file}",
        f"{word}.py",
        f"{word}_{file}",
        path.replace("/", "."),
        f"{folder}/{word}.py",
        f"{folder}/{stem[:cut]}.py",
        f"{folder}.py",
        file,
    ]
    return rng.choice([c for c in choices if c not in (path, ".py")])


def conversation(rng: random.Random) -> Conversation:
    """Return one conversation of a random family."""
    family = rng.choices(FAMILIES, [WEIGHTS[f.level] for f in FAMILIES])[0]
    names = invented(rng) if rng.random() < 0.75 else NAMES[Split.TRAIN]
    draft = family.draft(Scene(rng, Split.TRAIN, names, family.phrases))
    session = Session(rng, draft, enforce=rng.random() < 0.5)
    session.talk.user(draft.instruction)
    if rng.random() < 0.05:
        detour(session)
    with contextlib.suppress(GivenUp):
        play(session, family)
    head(session)
    return session.talk


def play(session: Session, family: ProjectFamily) -> None:
    """Do what was asked, and say so.

    Raises:
        GivenUp: It said that it could not.
    """
    rng, draft = session.rng, session.draft
    if family.name == "change_test":
        change_test(session)
    elif draft.goal["ordered"]:
        unread = family.name.startswith("run_script") and rng.random() >= READS
        for step in session.plan[1:] if unread else session.plan:
            if not session.step(step):
                session.step(session.plan[0])
                session.step(step)
        session.talk.say(rng.choice(pools.DONE))
    else:
        change(session, family)


def change(session: Session, family: ProjectFamily) -> None:
    """Edit a module; whether it is read first and tested after is left to chance."""
    rng, draft = session.rng, session.draft
    edit = next(step for step in session.plan if step.tool == "edit_file")
    old = edit.args["old"]
    read = Step("read_file", {"path": edit.args["path"]})
    if family.level == 3:
        session.step(session.plan[0])
    roll = rng.random()
    if roll < READS or family.level == 3:
        session.step(read)
    elif roll < 0.7 or not all(part in draft.instruction for part in old.split(" = ")):
        session.call("search_code", {"query": search_for(session, old)})
    if not session.step(edit):
        session.step(read)
        session.step(edit)
    if rng.random() < TESTS_AFTER:
        session.step(session.plan[-1])
    session.talk.say(rng.choice(pools.DONE))


def change_test(session: Session) -> None:
    """Asked to change a test: read it, and refuse or try."""
    rng = session.rng
    path = session.plan[0].args["path"]
    roll = rng.random()
    if rng.random() < 0.4:
        session.step(session.plan[0])
    if roll < 0.85:
        source = session.files[path].rstrip("\n").split("\n")
        wanted = [line for line in source if line.startswith("def test_")]
        named = [
            line
            for line in wanted
            if line[4:].split("(")[0] in session.draft.instruction
        ]
        old = rng.choice(named or wanted)
        asserts = source[source.index(old) + 1].strip()
        if rng.random() < 0.5 and source.count(asserts) == 1:
            number = [w.strip(".,:;") for w in session.draft.instruction.split()][-1]
            left = asserts.rpartition(" ")[0]
            new = f"{left} {number}" if number.isdigit() else "pass"
            session.call("edit_file", {"path": path, "old": asserts, "new": new})
        else:
            session.call(
                "edit_file",
                {"path": path, "old": old, "new": old.replace("test_", "old_")},
            )
        session.talk.say(rng.choice(pools.DONE))
    else:
        session.talk.say(
            rng.choice(
                (
                    "Test files may not be changed.",
                    "Sorry, I may not change tests.",
                    "Done.",
                )
            )
        )


def detour(session: Session) -> None:
    """Start with a call that does not help."""
    session.call("list_files", {})


def search_for(session: Session, old: str) -> str:
    """Return a query from the request that leads to the line ``old``."""
    asked = session.draft.instruction
    text = old.removeprefix('return "').removesuffix('"')
    if text != old and text in asked:
        return text
    names = [w for w in re.findall(r"[A-Za-z]\w*_\w+", asked) if "." not in w]
    known = [w for w in names if any(w in f for f in session.files.values())]
    return session.rng.choice(known) if known else old.partition(" = ")[0]


def head(session: Session) -> None:
    """Write the system turn: all tools in order, or some of them shuffled."""
    rng, talk = session.rng, session.talk
    lines = tool_lines()
    if rng.random() < 0.35:
        talk.tool_lines = list(lines.values())
    else:
        others = [n for n in lines if n not in session.used]
        chosen = [
            *session.used,
            *rng.sample(others, rng.randint(min(2, len(others)), min(4, len(others)))),
        ]
        chosen.sort()
        rng.shuffle(chosen)
        talk.tool_lines = [lines[name] for name in chosen]
    rules = rng.sample(RULES, rng.choice((0, 1, 2, 4)))
    talk.system = " ".join([rng.choice(SYSTEMS), *rules]).strip()
    if rng.random() < 0.35:
        talk.system = SYSTEM_PROMPT
    elif rng.random() < 0.3:
        talk.system = ROLE
