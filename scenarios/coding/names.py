"""Words for the names in generated projects, one set of words per split.

No word is in two sets, or in the phrases of requests. So the names in held-out tasks
are new to the agent, which has to copy them.
"""

import builtins
import keyword
from dataclasses import dataclass
from functools import cache
from random import Random

from agentgym.core.task import Split

INVENTED = 0.75
"""Share of training projects with invented names."""

_PIECE = (2, 4)
_LONGEST = 8
"""Maximum letters of a name; with longer ones, projects do not fit into a prompt."""
_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kn l m n p ph pl pr qu r s sc sh sk "
    "sl sm sn sp st str sw t th tr tw v w wh wr y z"
)
_NUCLEI = "a e i o u ai au ea ee ie oa oo ou oi"
_CODAS = (
    "b ck ct d ff ft g l ld lk ll lm lt m mp n nd ng nk nt p pt r rb rd rk rl rm rn rp "
    "rt s sh sk sp ss st t th tt w x z"
)


@dataclass(frozen=True)
class Names:
    """The words of one split, from which names in projects are made.

    Attributes:
        nouns: Topics of modules, functions, constants and scripts.
        parameters: Pairs of parameter names.
    """

    packages: tuple[str, ...]
    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    lists: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return all words of this split."""
        pairs = (word for pair in self.parameters for word in pair)
        return frozenset(
            (*self.packages, *self.nouns, *self.adjectives, *self.lists, *pairs)
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    found = (pair.split("/") for pair in text.split())
    return tuple((first, second) for first, second in found)


NAMES = {
    Split.TRAIN: Names(
        packages=_words("""
            shop bakery garage hotel museum airport farm library clinic cinema
            bank studio office market kitchen garden brewery stadium theater
            gallery factory campus casino depot dairy embassy forge foundry
            hangar hostel kiosk lodge marina nursery parlor pharmacy quarry ranch
            refinery resort salon sawmill shelter smithy spa stable tavern
            temple vineyard winery workshop zoo arcade bistro cafe canteen
        """),
        nouns=_words("""
            parcel lamp ticket wheel apple bottle window carpet basket candle
            button ladder mirror needle pencil pillow pocket ribbon saddle
            shovel spoon sticker tablet teapot thread towel trumpet tunnel
            umbrella vase violin wagon wallet whistle zipper anchor badge
            banner barrel beacon blanket bracelet bridge brush bucket bulb
            cabinet cable camera canoe cart chair chain cheese clock cloud
            coat coin compass cookie copper cotton cradle crate crayon cup
            curtain desk diamond dish doll door dress drum engine envelope
            fabric feather fence flag flute fork fountain fruit funnel gate
            glove guitar hammer handle harp hat helmet hinge honey hook horn
            hose jacket jar jewel kettle kite knife knob lantern leather lemon
            lens letter lever lid lock magnet marble mask medal melon mitten
            mop motor mug nail napkin necklace net nut oar olive onion oven
            paddle paint pan panel pearl pedal pepper piano pipe pitcher plank
            plate plug plum pot potato pump puppet purse puzzle quilt radio
            raft razor rice robe rocket roof rope rug ruler salad sandal scarf
            screw seed shelf shell shirt shoe sieve silk skate sled sleeve
            soap sock sofa spade sponge spring stamp statue stove straw sugar
            suitcase sweater sword syrup table tape tent tile tomato torch
            toy tractor tray truck tube valve velvet vest wand wax wire wool
            yarn zinc
        """),
        adjectives=_words("""
            blue heavy small round soft bright empty loaded fresh cheap warm cold
            cracked neat early late rare common short tall narrow wide quiet
            loud sweet bitter dark pale smooth rough sharp dull
        """),
        parameters=_pairs("""
            price/fee width/height amount/bonus weight/load speed/delay
            score/penalty cost/discount length/depth salary/extra income/debt
            gain/loss age/tenure stock/demand level/boost power/drain
            pages/chapters rows/columns hours/rests miles/detours votes/seats
            credit/charge volume/leak heat/frost profit/tax days/holidays
            guests/beds steps/stairs liters/spill grams/sauce wins/draws
        """),
        lists=_words("""
            prices weights scores costs ages speeds totals lengths votes grades
            hours points levels amounts sizes volumes profits wages
        """),
    ),
    Split.VALIDATION: Names(
        packages=_words("""
            orchard bazaar cottage tannery harbor nightclub cathedral barracks
            greenhouse planetarium fishery chalet lighthouse monastery carwash
            butchery aquarium playhouse boathouse creamery courthouse laundry
            outpost observatory
        """),
        nouns=_words("""
            rabbit turnip pumpkin walnut cactus dolphin falcon hamster igloo
            jigsaw kimono lobster maple nectar ostrich parrot quartz raven
            salmon tulip urchin vulture walrus badger beetle cherry daisy
            eagle ferret gecko tiger zebra camel otter panda beaver cobra
            donkey giraffe heron jaguar koala lizard magpie newt octopus
            penguin quail reindeer spider turtle weasel acorn bamboo clover
            fern grape hazel iris jasmine
        """),
        adjectives=_words("""
            gentle golden hollow jolly lively muddy noble polite royal silent
            tender wooden ancient brave clever fancy humble icy mellow odd
            proud rusty shiny velvety
        """),
        parameters=_pairs("""
            rent/deposit height_cm/heel oxygen/smoke budget/overrun altitude/drift
            pressure/suction harvest/waste ink/smudge toll/rebate signal/noise
            fuel/spillage mass/ballast cargo/spoilage dose/residue crop/husk
            tuition/grant
        """),
        lists=_words("""
            rents budgets harvests altitudes pressures tides tolls signals
            doses yields cargoes fuels
        """),
    ),
    Split.TEST: Names(
        packages=_words("""
            windmill newsroom ballroom sauna chapel granary hospital academy
            consulate dormitory fortress palace castle florist velodrome
            skatepark
        """),
        nouns=_words("""
            hedgehog leopard pelican sardine buffalo trombone starling pickle
            carrot kitten lettuce mushroom spinach parsley peach stork
            papaya lavender monkey banjo pirate dragon butter muffin
            pretzel waffle noodle garlic almond chestnut seagull pigeon
            rooster poodle baboon moose bison marmot toucan turkey
        """),
        adjectives=_words("""
            bold crisp curly tiny nervous sleepy sturdy clumsy cozy greasy
            honest grumpy sticky puzzled
        """),
        parameters=_pairs("""
            premium/subsidy torque/friction voltage/resistance rainfall/runoff
            pension/levy stipend/expense mortgage/shrinkage throttle/brake
            turnout/dropouts cement/gravel
        """),
        lists=_words("""
            premiums rainfalls pensions stipends torques turnouts rations
            calories
        """),
    ),
    Split.OUT_OF_VOCABULARY: Names(
        packages=_words("""
            priory cloister belfry bodega drydock gazebo homestead minaret
            parsonage pavilion shrine synagogue turret vicarage
        """),
        nouns=_words("""
            cauldron chariot cyclone geyser goblin gargoyle griffin javelin
            kraken mammoth monsoon mummy phantom phoenix tempest trident
            typhoon werewolf centurion scorpion minotaur mirage bandit relic rapier
            vortex banshee centaur talisman oracle emblem harpoon
        """),
        adjectives=_words("""
            azure cryptic dapper eerie gaunt jagged luminous pungent regal
            rugged serene sullen vivid wispy
        """),
        parameters=_pairs("""
            ducats/tribute venom/antidote joules/farads karma/omen knots/headwind
            alimony/dowry quorum/caliber recoil/plunder
        """),
        lists=_words("venoms omens quorums calibers alimonies barnacles"),
    ),
}


def names_for(split: Split, rng: Random) -> Names:
    """Return words for a project of ``split``; in training, sometimes invented ones."""
    # Held-out tasks use words that never occur in training: the policy has to learn to
    # copy any sequence of letters, instead of recalling the words of training.
    if split is Split.TRAIN and rng.random() < INVENTED:
        return invented(rng)
    return NAMES[split]


def invented(rng: Random) -> Names:
    """Return invented words, none of which is among the words of any split."""
    words: list[str] = []
    while len(words) < 30:
        word = _word(rng)
        known = {word, word + "s"} & _taken()
        if not known and not any(word in other or other in word for other in words):
            words.append(word)
    return Names(
        packages=tuple(words[:2]),
        nouns=tuple(words[2:14]),
        adjectives=tuple(words[14:18]),
        parameters=tuple(zip(words[18:23], words[23:28], strict=True)),
        lists=tuple(word + "s" for word in words[28:]),
    )


def _word(rng: Random) -> str:
    """Return a word made of two or three random syllables or training-word pieces."""
    piece = rng.choice((_splinter, _syllable))
    made = "".join(piece(rng) for _ in range(rng.choice((2, 2, 2, 3))))
    return made[:_LONGEST]


def _splinter(rng: Random) -> str:
    source = rng.choice(_sources())
    start = rng.randrange(len(source) - 1)
    return source[start : start + rng.randint(*_PIECE)]


def _syllable(rng: Random) -> str:
    parts = [_ONSETS, _NUCLEI, _CODAS] if rng.random() < 0.35 else [_ONSETS, _NUCLEI]
    return "".join(rng.choice(part.split()) for part in parts)


@cache
def _sources() -> tuple[str, ...]:
    names = NAMES[Split.TRAIN]
    return tuple(word for word in (*names.nouns, *names.packages) if len(word) > 3)


@cache
def _taken() -> frozenset[str]:
    known = {word for names in NAMES.values() for word in names.words()}
    return frozenset({*known, *dir(builtins), *keyword.kwlist, "test", "tests", "sys"})
