"""The vocabulary of each split: cities by country, people, codes and phrases."""

from typing import NamedTuple

from agentgym import Split


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


WORDS = {
    Split.TRAIN: Words(
        [("Oslo", "Bergen"), ("Rome", "Milan"), ("Madrid", "Seville")],
        ["Anna", "Peter", "Maria", "David", "Julia", "Simon"],
        ["Berg", "Stone", "Moore", "Keller", "Lane", "Silva"],
        "NB",
        "KR",
        "may",
    ),
    Split.VALIDATION: Words(
        [("Paris", "Lyon"), ("Vienna", "Graz")],
        ["Laura", "Martin", "Clara"],
        ["Wood", "Fischer", "Costa"],
        "FA",
        "VD",
        "june",
    ),
    Split.TEST: Words(
        [("Berlin", "Hamburg"), ("Porto", "Lisbon")],
        ["Emma", "Thomas", "Nina", "Oscar"],
        ["Hill", "Weber", "Rossi", "Novak"],
        "GP",
        "TS",
        "july",
    ),
    Split.OUT_OF_VOCABULARY: Words(
        [("Kyoto", "Osaka"), ("Lima", "Cusco")],
        ["Aiko", "Ines", "Ravi"],
        ["Tanaka", "Quispe", "Mehta"],
        "ZL",
        "WJ",
        "august",
    ),
}

# One line a family and split; {slots} are filled by families.py.
PHRASES = {
    "search": {
        Split.TRAIN: [
            "search flights from {origin} to {destination} on {day}",
            "find all flights from {origin} to {destination} on {day}",
        ],
        Split.VALIDATION: ["on {day}, search flights from {origin} to {destination}"],
        Split.TEST: ["find flights to {destination} from {origin} on {day}"],
        Split.OUT_OF_VOCABULARY: [
            "which planes leave {origin} for {destination} {day}"
        ],
    },
    "read": {
        Split.TRAIN: ["read booking {booking}", "show booking {booking}"],
        Split.VALIDATION: ["please show me booking {booking}"],
        Split.TEST: ["read me the booking {booking}"],
        Split.OUT_OF_VOCABULARY: ["pull up reservation {booking}"],
    },
    "hold": {
        Split.TRAIN: [
            "hold flight {flight} for {passenger}",
            "hold a seat on {flight} for {passenger}",
        ],
        Split.VALIDATION: ["for {passenger}, hold flight {flight}"],
        Split.TEST: ["hold {flight} for {passenger}"],
        Split.OUT_OF_VOCABULARY: ["keep {flight} free on behalf of {passenger}"],
    },
    "bags": {
        Split.TRAIN: [
            "add {count} bags to booking {booking}",
            "booking {booking} needs {count} bags",
        ],
        Split.VALIDATION: ["add {count} bags, booking {booking}"],
        Split.TEST: ["{booking} needs {count} bags, add them"],
        Split.OUT_OF_VOCABULARY: ["put luggage on {booking}: {count} pieces"],
    },
    "passport": {
        Split.TRAIN: [
            "write passport {passport} into booking {booking}",
            "the passport of booking {booking} is {passport}",
        ],
        Split.VALIDATION: ["booking {booking}: the passport is {passport}"],
        Split.TEST: ["set passport {passport} on booking {booking}"],
        Split.OUT_OF_VOCABULARY: ["{booking} travels on document {passport}"],
    },
    "book": {
        Split.TRAIN: [
            "book flight {flight} for {passenger}, fare {fare}{papers}",
            "book a {fare} seat on {flight} for {passenger}{papers}",
        ],
        Split.VALIDATION: ["for {passenger}, book {flight}, fare {fare}{papers}"],
        Split.TEST: ["book {flight}, fare {fare}, for {passenger}{papers}"],
        Split.OUT_OF_VOCABULARY: ["purchase {flight} ({fare}): {passenger}{papers}"],
    },
    "book_cheapest": {
        Split.TRAIN: [
            "book the cheapest flight from {origin} to {destination} on {day} "
            "for {passenger}, fare {fare}{papers}",
        ],
        Split.VALIDATION: [
            "for {passenger}, book the cheapest {fare} flight from {origin} to "
            "{destination} on {day}{papers}",
        ],
        Split.TEST: [
            "book {passenger} on the cheapest flight to {destination} from {origin} "
            "on {day}, fare {fare}{papers}",
        ],
        Split.OUT_OF_VOCABULARY: [
            "least costly plane {origin} {destination} {day}, {fare}, "
            "{passenger}{papers}",
        ],
    },
    "cancel": {
        Split.TRAIN: ["cancel booking {booking}", "please cancel {booking}"],
        Split.VALIDATION: ["booking {booking}, cancel it"],
        Split.TEST: ["cancel the booking {booking}"],
        Split.OUT_OF_VOCABULARY: ["scrap reservation {booking}"],
    },
    "change": {
        Split.TRAIN: [
            "move booking {booking} to flight {flight}",
            "change booking {booking} to {flight}",
        ],
        Split.VALIDATION: ["change {booking} to flight {flight}"],
        Split.TEST: ["move {booking} to {flight}"],
        Split.OUT_OF_VOCABULARY: ["switch reservation {booking} over to {flight}"],
    },
    "change_cheapest": {
        Split.TRAIN: [
            "move booking {booking} to the cheapest flight on {day}",
            "change booking {booking} to the cheapest flight on {day}",
        ],
        Split.VALIDATION: ["change {booking}: cheapest flight on {day}"],
        Split.TEST: ["on {day}, move {booking} to the cheapest flight"],
        Split.OUT_OF_VOCABULARY: ["shift {booking} to whatever costs least {day}"],
    },
    "rebook": {
        Split.TRAIN: [
            "book the cheapest flight on {day} in place of booking {booking}, "
            "then cancel {booking}",
        ],
        Split.VALIDATION: [
            "replace booking {booking} by the cheapest flight on {day}, then cancel it",
        ],
        Split.TEST: [
            "cancel {booking} after you book the cheapest flight on {day} in its place",
        ],
        Split.OUT_OF_VOCABULARY: [
            "swap {booking} for a fresh reservation, least costly on {day}",
        ],
    },
}
