"""Flight booking: search, hold, book, change and cancel under fare rules."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory
from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolOutcome, ToolSpec, tool_specs
from agentgym.core.trajectory import ToolCall
from agentgym.packs.kit.phrases import read_pools, read_tables
from agentgym.packs.kit.tasks import Draft

from .desk import REFUND_HOURS, Desk

Plan = list[tuple[str, dict[str, Any]]]

_BY_LEVEL = {
    1: ("search", "read", "hold", "bags", "passport", "book"),
    2: ("book_cheapest", "cancel", "change"),
    3: ("change_cheapest", "rebook"),
}
LEVELS = {name: level for level, names in _BY_LEVEL.items() for name in names}


class Words(NamedTuple):
    """The words of a split; none occurs in another.

    Attributes:
        countries: Two cities each.
        airline: Letters that flight codes begin with.
        prefix: Letters that booking codes begin with.
        month: Of all days.
    """

    countries: list[tuple[str, str]]
    first_names: list[str]
    last_names: list[str]
    airline: str
    prefix: str
    month: str


_FOLDER = Path(__file__).parent
WORDS = {s: Words(**found) for s, found in read_tables(_FOLDER / "words.toml").items()}
PHRASES = read_pools(_FOLDER / "wording")
"""Phrases by family and split."""


class _Scene:
    """Flights of one route on two days, and one booking on the first."""

    def __init__(self, rng: Random, split: Split) -> None:
        self.rng, self.words = rng, WORDS[split]
        countries = rng.sample(self.words.countries, 2)
        self.abroad = rng.random() < 0.4
        pair = (countries[0][0], countries[1][0]) if self.abroad else countries[0]
        self.origin, self.destination = rng.sample(pair, 2)
        first = rng.randint(1, 14)
        self.days = [f"{first + 7 * week} {self.words.month}" for week in (0, 1)]
        self.flights = [self._flight(day) for day in self.days for _ in range(3)]
        first_name = rng.choice(self.words.first_names)
        self.passenger = f"{first_name} {rng.choice(self.words.last_names)}"
        self.fare = rng.choice(("basic", "flex"))
        self.passport = f"P{rng.randint(1000, 9999)}"
        self.number = rng.randint(100, 899)
        self.booking = f"{self.words.prefix}{self.number}"
        self.hours = rng.choice((2, 5, 12, 20, 30, 48, 60, 90))
        self.held_passport = self.passport if self.abroad else ""

    def _flight(self, day: str) -> list[Any]:
        code = f"{self.words.airline}{self.rng.randint(10, 999)}"
        price = self.rng.randint(40, 400)
        return [code, self.origin, self.destination, day, price, 5, int(self.abroad)]

    @property
    def distinct(self) -> bool:
        """Whether no two flights share a code or a price."""
        return (
            len({f[0] for f in self.flights}) == len({f[4] for f in self.flights}) == 6
        )

    def cheapest(self, day: str) -> str:
        """Return the code of the cheapest flight of a day."""
        code: str = min((f for f in self.flights if f[3] == day), key=lambda f: f[4])[0]
        return code

    def state(self) -> dict[str, Any]:
        """Return the initial state of the desk."""
        booked = [self.booking, self.flights[0][0], self.passenger, self.fare, 0]
        booked += [self.held_passport, "booked", self.hours, 0]
        return {
            "flights": sorted(self.flights),
            "bookings": [booked],
            "prefix": self.words.prefix,
            "next": self.number + 1,
        }


def draft(rng: Random, split: Split, family: str) -> Draft:
    """Return a task of a family; ``rng`` decides it wholly."""
    scene = _Scene(rng, split)
    while not scene.distinct:
        scene = _Scene(rng, split)
    if family == "change_cheapest":
        scene.fare = "flex"
    if family == "passport":
        scene.held_passport = ""
    flight = rng.choice(scene.flights[1:])[0]
    count = rng.randint(1, 2)
    instruction = rng.choice(PHRASES[family][split]).format(
        **vars(scene),
        day=scene.days[1],
        flight=flight,
        count=count,
        papers=f", passport {scene.passport}" if scene.abroad else "",
    )
    plan = [list(call) for call in _plan(scene, family, flight, count)]
    return Draft(instruction, scene.state(), {"plan": plan})


def _plan(scene: _Scene, family: str, flight: str, count: int) -> Plan:
    booking, later = {"booking": scene.booking}, scene.days[1]
    route = {"origin": scene.origin, "destination": scene.destination, "day": later}
    best = {"flight": scene.cheapest(later)}
    search = ("search_flights", route)
    read = ("read_booking", booking)
    cancel = ("cancel_booking", {**booking, "refund": scene.hours <= REFUND_HOURS})
    person = {"passenger": scene.passenger, "fare": scene.fare}
    if scene.abroad:
        person["passport"] = scene.passport
    change = ("change_flight", {**booking, "flight": flight})
    plans: dict[str, Plan] = {
        "search": [search],
        "read": [read],
        "hold": [("hold_flight", {"flight": flight, "passenger": scene.passenger})],
        "bags": [("add_bags", {**booking, "count": count})],
        "passport": [("set_passport", {**booking, "passport": scene.passport})],
        "book": [("book_flight", {"flight": flight, **person})],
        "book_cheapest": [search, ("book_flight", {**best, **person})],
        "cancel": [read, cancel],
        "change": [read, change] if scene.fare == "flex" else [read],
        "change_cheapest": [read, search, ("change_flight", {**booking, **best})],
        "rebook": [read, search, ("book_flight", {**best, **person}), cancel],
    }
    return plans[family]


PROGRESS = 0.4
VIOLATION = -0.2
_SPARE_CALLS = {1: 1, 2: 2, 3: 3}


class FlightBookingScenario(Scenario):
    """A booking desk on SQLite; the reward reads the database."""

    name = "flight_booking"
    description = "Search, book, change and cancel flights by the rules."
    difficulty = "intermediate"
    estimated_time = "about 10 minutes on 2 cores, with a warm start"
    max_turns = 9
    splits = tuple(Split)

    def system_prompt(self) -> str:
        """Return the role and the fare rules."""
        return (
            "You are the agent of a flight desk. Use the tools, then answer in a few "
            "words. Rules: read a booking before you change or cancel it; a basic fare "
            "cannot be changed, so only read it; refund a booking of at most 24 hours, "
            "never an older one; flights abroad need a passport; 2 bags at most."
        )

    def tools(self) -> list[ToolSpec]:
        """Return the tools of the desk."""
        return tool_specs(Desk)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks, families in turn."""
        return [self._task(split, seed, number) for number in range(count)]

    def _task(self, split: Split, seed: int, number: int) -> Task:
        family = list(LEVELS)[number % len(LEVELS)]
        identity = f"{split.value}/{family}/{seed}/{number}"
        made = draft(Random(identity), split, family)
        return Task(
            id=identity,
            split=split,
            seed=seed,
            family=family,
            level=LEVELS[family],
            instruction=made.instruction,
            initial_state=made.state,
            goal=made.goal,
        )

    def create_environment(self, task: Task) -> Desk:
        """Return a desk in the task's initial state."""
        return Desk(task.initial_state)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score the database, the look-ups that were needed, and the rules kept.

        A success is worth 1 less a little per needless call, at least 0.5; an agent
        that has merely tried everything has none. Else each needed call
        made in order is worth its share of 0.4, which needless calls melt away; a
        broken rule costs 0.2.
        """
        assert isinstance(environment, Desk)
        needed, calls = self.needed_calls(task), trajectory.get_tool_calls()
        over = max(0, len(calls) - len(needed) - _SPARE_CALLS[task.level])
        broken = sum(call.outcome is ToolOutcome.RULE_BROKEN for call in calls)
        bookings, looked_up = self._wanted(task)
        right = environment.bookings() == bookings
        right = right and looked_up <= environment.looked_up()
        specs = {spec.name: spec for spec in self.tools()}
        made = 0
        for call in calls:
            if made < len(needed):
                step = needed[made]
                made += step.accepts(call, specs[step.tool], succeeded=False)
        tools = {call.name for call in calls}
        right_tool = sum(step.tool in tools for step in needed) / len(needed)
        if right and not broken and not (over and self._is_guessed(task, calls)):
            cost = max(-0.03 * max(0, len(calls) - len(needed)), -0.5)
            return Reward(1.0 + cost, True, {"outcome": 1.0, "cost": cost}, 1.0, 1.0)
        parts = {
            "progress": PROGRESS * made / len(needed) * max(0.0, 1.0 - over / 2),
            "rules": VIOLATION * min(broken, 2),
        }
        value = sum(parts.values())
        return Reward(value, False, parts, right_tool, made / len(needed))

    def _is_guessed(self, task: Task, calls: Sequence[ToolCall]) -> bool:
        """Return whether many calls tried each other tool, or ever new arguments."""
        wanted = [need.tool for need in self.needed_calls(task)]
        others = {spec.name for spec in self.tools()}.difference(wanted)
        different = {str((c.name, c.arguments)) for c in calls if c.name in wanted}
        guesses = len(different) - len(wanted)
        tried_all = others <= {call.name for call in calls}
        return tried_all or guesses > _SPARE_CALLS[task.level]

    def _wanted(self, task: Task) -> tuple[list[tuple[object, ...]], set[str]]:
        """Return the bookings and reads after the needed calls, on a new desk."""
        desk = Desk(task.initial_state)
        try:
            tools = {tool.spec.name: tool.function for tool in desk.tools()}
            for call in self.needed_calls(task):
                tools[call.tool](**call.arguments)
            return desk.bookings(), desk.looked_up()
        finally:
            desk.close()

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that solve a task, in order."""
        return [NeededCall(tool, arguments) for tool, arguments in task.goal["plan"]]

    def vocabulary(self, split: Split) -> set[str]:
        """Return the cities, names and months of a split."""
        words = WORDS[split]
        cities = {city for country in words.countries for city in country}
        return cities | {*words.first_names, *words.last_names}
