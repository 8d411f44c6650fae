"""How customers name their orders, and tell facts about themselves."""

from random import Random

from agentgym.core.task import Split

ORDER = {
    Split.TRAIN: (
        "order {n}",
        "order {n}",
        "my order {n}",
        "the order {n}",
        "order number {n}",
        "purchase {n}",
    ),
    Split.VALIDATION: ("my order number {n}", "my purchase {n}"),
    Split.TEST: ("the purchase {n}", "the order number {n}"),
    Split.OUT_OF_VOCABULARY: ("transaction {n}", "the consignment {n}"),
}
VAGUE = {
    Split.TRAIN: ("my order", "my purchase", "an order of mine", "my last order"),
    Split.VALIDATION: ("my last purchase",),
    Split.TEST: ("a purchase of mine",),
    Split.OUT_OF_VOCABULARY: ("my latest haul", "the recent transaction"),
}
VAGUE_ITEM = {
    Split.TRAIN: ("my order with the {i}", "the order with the {i}"),
    Split.VALIDATION: ("my purchase with the {i}",),
    Split.TEST: ("the purchase with the {i}",),
    Split.OUT_OF_VOCABULARY: ("the transaction including the {i}",),
}
IDENTITY = {
    Split.TRAIN: (
        "my email is {m}",
        "my name is {p}, my email is {m}",
        "i am {p}, {m}",
        "{p} here, {m}",
        "you can find me under {m}",
    ),
    Split.VALIDATION: ("my name is {p}, {m}", "you find me under my email {m}"),
    Split.TEST: ("{p} is my name, {m}", "here is my email: {m}"),
    Split.OUT_OF_VOCABULARY: ("reachable at {m}", "{p} writing, inbox {m}"),
}
TELL = {
    Split.TRAIN: ("{x}", "it is {x}", "{x}, please", "sure, {x}", "{x}."),
    Split.VALIDATION: ("sure, it is {x}", "it is {x}, please"),
    Split.TEST: ("please, it is {x}", "{x}, sure"),
    Split.OUT_OF_VOCABULARY: ("that would be {x}", "certainly: {x}"),
}
TELL_KIND = {
    Split.TRAIN: ("my {k} is {x}", "the {k} is {x}"),
    Split.VALIDATION: ("{x} is my {k}",),
    Split.TEST: ("{x} is the {k}",),
    Split.OUT_OF_VOCABULARY: ("note my {k}, {x}",),
}
CORRECT = {
    Split.TRAIN: ("sorry, it is {x}", "my mistake, it is {x}", "sorry, {x}"),
    Split.VALIDATION: ("sorry, my mistake, {x}",),
    Split.TEST: ("my mistake: {x}",),
    Split.OUT_OF_VOCABULARY: ("oops, a typo, {x}",),
}
CHANGE = {
    Split.TRAIN: ("i changed my mind: ", "wait, ", "no, "),
    Split.VALIDATION: ("wait, i changed my mind: ",),
    Split.TEST: ("no, i changed my mind: ",),
    Split.OUT_OF_VOCABULARY: ("on reflection, ",),
}
MORE = {
    Split.TRAIN: ("thanks. ", "one more thing: ", "also, ", "thank you, now "),
    Split.VALIDATION: ("thanks, one more thing: ",),
    Split.TEST: ("thank you. also, ",),
    Split.OUT_OF_VOCABULARY: ("splendid. furthermore: ",),
}
FORMS = (
    ORDER,
    VAGUE,
    VAGUE_ITEM,
    IDENTITY,
    TELL,
    TELL_KIND,
    CORRECT,
    CHANGE,
    MORE,
)


def draw(rng: Random, split: Split, forms: dict[Split, tuple[str, ...]]) -> str:
    """Draw a form: a held-out split mixes its own with those of training."""
    own = forms[split]
    if split is Split.TRAIN or rng.random() < 0.5:
        return rng.choice(own)
    return rng.choice(forms[Split.TRAIN])


def order(rng: Random, split: Split, number: str) -> str:
    """Refer to an order by its number."""
    return draw(rng, split, ORDER).format(n=number)


def fact(rng: Random, split: Split, kind: str, value: str) -> str:
    """Answer a question for one fact."""
    if rng.random() < 0.3:
        name = {"order": "order number"}.get(kind, kind)
        return draw(rng, split, TELL_KIND).format(k=name, x=value)
    return draw(rng, split, TELL).format(x=value)
