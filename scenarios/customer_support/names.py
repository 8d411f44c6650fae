"""Names of people, places and products for generated shops, one set per split.

No name is in two sets. So the names in held-out tasks are new to the agent, which has
to copy them.
"""

from dataclasses import dataclass
from random import Random

from agentgym.core.task import Split

_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


@dataclass(frozen=True)
class SupportNames:
    """The names of one split.

    Attributes:
        domains: Domains of email addresses, without endings such as ``.com``.
        subjects: Subjects of complaints.
        numbers: Formats of order numbers. In a format, ``9`` stands for a digit, ``A``
            for a capital letter, and other characters for themselves.
    """

    first: tuple[str, ...]
    last: tuple[str, ...]
    domains: tuple[str, ...]
    products: tuple[str, ...]
    cities: tuple[str, ...]
    streets: tuple[str, ...]
    subjects: tuple[str, ...]
    numbers: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return the words of all lists, except ``subjects`` and ``numbers``."""
        return frozenset(
            (
                *self.first,
                *self.last,
                *self.domains,
                *self.products,
                *self.cities,
                *self.streets,
            )
        )

    def number(self, rng: Random) -> str:
        """Return a random order number in one of this split's formats."""
        made = ""
        for sign in rng.choice(self.numbers):
            if sign == "9":
                made += rng.choice("123456789" if not made else "0123456789")
            else:
                made += rng.choice(_LETTERS) if sign == "A" else sign
        return made


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split("|"))


NAMES = {
    Split.TRAIN: SupportNames(
        first=_words("""
            Anna Ben Carla David Elena Felix Greta Hugo Jonas Kira Leo Maria Nina
            Oscar Paula Quinn Rosa Simon Tara Uwe Vera Walter Xenia Yusuf Zoe Alba
            Bruno Clara Dario Emil Fatima Gustav Hanna Ivan Julia Karim Lena Marco
        """),
        last=_words("""
            Berg Costa Dahl Evans Fischer Garcia Hansen Ito Jansen Keller Lopez
            Moreau Nowak Olsen Peters Rossi Silva Tamm Urban Vogel Weber Young
            Abbas Baker Clarke Duarte Engel Ferrari Huber Jensen Kumar Larsen
        """),
        domains=_words("""
            amber beacon birch canyon cobalt delta flint forest granite indigo
            island juniper meadow orbit pebble river summit timber valley zenith
        """),
        products=_words("""
            lamp chair table shirt jacket book phone laptop mouse keyboard monitor
            bag shoes hat mug plate bottle watch camera clock sofa desk cable
            charger headset speaker blender kettle toaster tent bike helmet scarf
            belt wallet ring mirror pillow blanket towel
        """),
        cities=_words("""
            Berlin Oslo Paris Lyon Madrid Porto Rome Milan Vienna Graz Zurich
            Prague Warsaw Dublin Cork London Leeds Boston Denver Austin Tokyo
        """),
        streets=_words("""
            Anchor Arrow Basin Birch Bridge Canal Cedar Cliff Crane Field Forest
            Garnet Harvest Linden Meadow Mint Oak Orchid Pine Poppy River Stone
        """),
        subjects=_lines("""
            it arrived broken|the box was damaged|it is too small|it came too late
            |it is the wrong color|it was ordered twice|the price is wrong|it does
            not work|the driver was rude|a part is missing|nobody called back|the
            wrong item was sent|the label was wrong|it smells bad
        """),
        numbers=("9999", "99999", "ord_9999", "ord_999", "A-9999", "AA-999"),
    ),
    Split.VALIDATION: SupportNames(
        first=_words("Ingrid Matteo Saskia Torben Liliana Caspian Dragan Philippa"),
        last=_words("""
            Halvorsen Bianchi Stojanovic Kowalczyk Andersson Delacroix Eriksen
            Thornbury
        """),
        domains=_words("postfach mailwerk letterhof sendwell"),
        products=_words("""
            hammock trolley armchair snowboard telescope dishwasher cardigan
            thermos stroller accordion
        """),
        cities=_words("Lisbon Helsinki Bergen Antwerp Utrecht"),
        streets=_words("Hollyhock Larkspur Gooseberry Buttercup Marigold"),
        subjects=_lines("""
            the box came open|the price went up twice|it was sent to the wrong
            place|nobody answers my mail|the color is not the one i ordered
        """),
        numbers=("99-9999", "A99-99"),
    ),
    Split.TEST: SupportNames(
        first=_words(
            "Marguerite Stefano Annika Rasheed Beatrix Leonid Henrike Octavio"
        ),
        last=_words("""
            Lundgren Marchand Papadakis Brzezinski Fitzgerald Sorensen Villanueva
            Hathaway
        """),
        domains=_words("briefhaus mailgarden postlane writeback"),
        products=_words("""
            wardrobe treadmill projector raincoat bookcase typewriter surfboard
            microwave bathrobe harmonica
        """),
        cities=_words("Geneva Bristol Leipzig Malmoe Toulouse"),
        streets=_words("Foxglove Elderflower Snowdrop Honeysuckle Bluebell"),
        subjects=_lines("""
            the box was empty|it came a month too late|the wrong size was sent
            |my mail was not answered|it does not work any more
        """),
        numbers=("9999A", "AA9-999"),
    ),
    Split.OUT_OF_VOCABULARY: SupportNames(
        first=_words("""
            Wilhelmina Giacomo Svetlana Ibrahim Clementine Archibald Penelope
            Thaddeus
        """),
        last=_words("""
            Abernathy Czerny Featherstone Oyelaran Quesada Rosenthal Szymborska
            Vandermeer
        """),
        domains=_words("courierly telegraf missivehub parchmail"),
        products=_words("""
            chandelier percolator trampoline hairdryer wheelbarrow saxophone
            terrarium gramophone sledgehammer periscope
        """),
        cities=_words("Reykjavik Montevideo Ljubljana Valparaiso Tbilisi"),
        streets=_words("Wisteria Rhododendron Edelweiss Chrysanthemum Hyacinth"),
        subjects=_lines("""
            the upholstery is torn|your courier insulted me|mould grew on the
            packaging|the warranty card is forged|hinges squeak dreadfully
        """),
        numbers=("A9A9A", "99.99.99"),
    ),
}
