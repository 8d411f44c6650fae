"""The words that generated projects are named with, one pool per split.

No word of one pool occurs in another, nor in the wording of requests: what the
agent meets on held-out tasks are names that it has never seen and has to copy.
"""

from dataclasses import dataclass

from agentgym.core.task import Split


@dataclass(frozen=True)
class Names:
    """One split's words.

    Attributes:
        packages: Names of packages.
        nouns: What modules, functions, constants and scripts are about.
        adjectives: For texts that programs show.
        parameters: Pairs of parameter names.
        lists: Names of parameters that are lists of numbers.
    """

    packages: tuple[str, ...]
    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    lists: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return every word of the pool."""
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
            greenhouse planetarium fishery chalet
        """),
        nouns=_words("""
            rabbit turnip pumpkin walnut cactus dolphin falcon hamster igloo
            jigsaw kimono lobster maple nectar ostrich parrot quartz raven
            salmon tulip urchin vulture walrus badger beetle cherry daisy
            eagle ferret gecko
        """),
        adjectives=_words("""
            gentle golden hollow jolly lively muddy noble polite royal silent
            tender wooden
        """),
        parameters=_pairs("""
            rent/deposit height_cm/heel oxygen/smoke budget/overrun altitude/drift
            pressure/suction harvest/waste ink/smudge
        """),
        lists=_words("rents budgets harvests altitudes pressures tides"),
    ),
    Split.TEST: Names(
        packages=_words("""
            lighthouse monastery carwash butchery aquarium playhouse boathouse
            creamery courthouse laundry outpost observatory
        """),
        nouns=_words("""
            tiger zebra camel otter panda beaver cobra donkey giraffe heron
            jaguar koala lizard magpie newt octopus penguin quail reindeer
            spider turtle weasel acorn bamboo clover fern grape hazel iris
            jasmine
        """),
        adjectives=_words("""
            ancient brave clever fancy humble icy mellow odd proud rusty shiny
            velvety
        """),
        parameters=_pairs("""
            toll/rebate signal/noise fuel/spillage mass/ballast cargo/spoilage
            dose/residue crop/husk tuition/grant
        """),
        lists=_words("tolls signals doses yields cargoes fuels"),
    ),
    Split.OUT_OF_VOCABULARY: Names(
        packages=_words("""
            abbey bungalow citadel dojo funfair gatehouse hermitage inn
            junkyard mansion pagoda rectory
        """),
        nouns=_words("""
            asteroid bagpipe comet dagger eclipse fossil galaxy hurricane
            icicle jungle kayak lagoon meteor nebula oasis pyramid quiver
            rainbow sphinx tornado unicorn volcano wizard yacht abacus bonfire
            catapult dynamo ember fjord
        """),
        adjectives=_words("""
            crimson dusty elegant fierce grim hazy ivory keen lunar mighty
            nimble opaque
        """),
        parameters=_pairs("""
            bounty/ransom wattage/ohms lumens/glare mana/curse tonnage/hull
            dividend/royalty pulse/murmur payload/ullage
        """),
        lists=_words("bounties lumen_log dividends pulses payloads tonnages"),
    ),
}
