"""Tasks: a desk in some state, a request, and the calls that it needs."""

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from agentgym import Split
from agentgym.packs.kit.phrases import read_pools, read_tables
from agentgym.packs.kit.tasks import Draft

from .desk import REFUND_HOURS

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
