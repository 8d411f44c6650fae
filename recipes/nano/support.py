"""A support desk: customers, orders and policies, which are followed at random."""

import random
from dataclasses import dataclass, field
from typing import Any

from recipes.nano import pools, support_words
from recipes.nano.conversation import Argument, Conversation, ToolLine, dump
from recipes.nano.values import email, person, prefixed, text, value, word


@dataclass
class Desk:
    """One customer, their orders, and the tools of the desk."""

    rng: random.Random
    talk: Conversation
    lines: dict[str, ToolLine]
    name: str
    mail: str
    customer: str
    postcode: str
    orders: dict[str, dict[str, Any]]
    verified: bool = False
    known: bool = False
    told: bool = False
    json: bool = field(default=True)

    def call(self, role: str, result: str, **facts: Any) -> None:
        """Call the tool of ``role`` with its arguments taken from ``facts`` in order."""
        line = self.lines[role]
        given = list(facts.values())
        arguments = {a.name: v for a, v in zip(line.arguments, given, strict=False)}
        self.talk.call(line.name, arguments, result)

    def shown(self, fields: dict[str, Any]) -> str:
        """Return a record as the desk's tools print it."""
        if self.json:
            return dump(fields)
        return ", ".join(f"{k} {v}" for k, v in fields.items())

    def pick(self, options: str) -> str:
        """Return one of the options that bars part."""
        return self.rng.choice(options.split("|"))


def make_line(rng: random.Random, role: str) -> ToolLine:
    """Return a tool of the desk in one of its wordings."""
    names, descriptions, arguments = support_words.TOOLS[role]
    made = []
    for part in arguments.split():
        name, _, kind = part.partition(":")
        kind, _, default = kind.partition("=")
        if rng.random() < 0.15:
            name = {
                "order_id": "order",
                "customer_id": "customer",
                "item": "product",
                "reason": "why",
            }.get(name, name)
        made.append(Argument(name, kind, None if default else ...))
    return ToolLine(
        rng.choice(names.split()), rng.choice(descriptions.split("|")), tuple(made)
    )


def conversation(rng: random.Random) -> Conversation:
    """Return one conversation at the desk."""
    count = rng.randint(6, 12)
    roles = {
        "customer",
        "order",
        *rng.sample(
            sorted(set(support_words.TOOLS) - {"customer", "order"}), count - 2
        ),
    }
    intents = [
        r
        for r in (*support_words.ASKS, *support_words.KEYED, "escalate", "stock")
        if r in roles
    ]
    lines = {
        role: make_line(rng, role)
        for role in sorted(sorted(roles), key=lambda _: rng.random())
    }
    system = rng.choice(
        (
            "You are the support agent of {}.",
            "You help customers of {}.",
            "Support desk of {}.",
            "You work at the help desk of {}.",
        )
    ).format(word(rng).capitalize())
    for policy in rng.sample(support_words.POLICIES, rng.choice((0, 0, 1, 2, 3))):
        system += " " + policy
    talk = Conversation(system, [line.line() for line in lines.values()])
    orders = {}
    style = rng.random()
    for _ in range(rng.randint(1, 4)):
        number = (
            str(rng.randint(1000, 99999))
            if style < 0.3
            else f"ord_{rng.randint(100, 9999)}"
            if style < 0.6
            else prefixed(rng)
        )
        orders[number] = {
            "status": rng.choice(support_words.STATES),
            "items": rng.sample(support_words.ITEMS, rng.randint(1, 3)),
            "total": round(rng.uniform(5, 400), 2),
        }
    desk = Desk(
        rng,
        talk,
        lines,
        person(rng),
        email(rng),
        rng.choice((f"cus_{rng.randint(10, 9999)}", prefixed(rng))),
        str(rng.randint(1000, 99999)),
        orders,
        json=rng.random() < 0.7,
    )
    if rng.random() < 0.2:
        talk.user(
            rng.choice(
                (
                    "hello",
                    "hi",
                    "good morning",
                    "hi, i need help",
                    "hello, can you help me?",
                )
            )
        )
        talk.say(rng.choice(("Hello! How can I help?", "Hi! What can I do for you?")))
    for intent in rng.choices(intents, k=rng.choice((1, 1, 2, 2, 3))):
        play(desk, intent)
    if rng.random() < 0.2:
        talk.user(rng.choice(support_words.THANKS))
        talk.say("You are welcome.")
    return talk


def play(desk: Desk, intent: str) -> None:
    """Play one request of the customer to its end."""
    if intent in support_words.ASKS:
        about_order(desk, intent)
    elif intent in support_words.KEYED:
        about_customer(desk, intent)
    elif intent == "stock":
        item = desk.rng.choice(support_words.ITEMS)
        left = desk.rng.choice((0, desk.rng.randint(1, 50)))
        say(
            desk,
            desk.pick(
                "do you have the {i} in stock|is the {i} available|how many {i}s are left|can i still buy a {i}|i would like a {i}, do you have it|any {i} left"
            ).format(i=item),
        )
        desk.call("stock", desk.shown({"product": item, "stock": left}), product=item)
        desk.talk.say(f"Yes, {left} are left." if left else "No, it is sold out.")
    else:
        reason = text(desk.rng)
        say(
            desk,
            desk.pick(
                'i want to talk to a human, "{t}"|get me a manager: {t}|connect me with a person, {t}|this is enough, i want your supervisor: {t}|a real person please, because {t}|let me speak to someone in charge: {t}'
            ).format(t=reason),
        )
        desk.call("escalate", "handed over", reason=reason)
        desk.talk.say("A colleague takes over.")


def say(desk: Desk, message: str) -> None:
    """Say something as the customer, in varied dress."""
    rng = desk.rng
    message = (
        rng.choice(pools.OPENERS[:8] if rng.random() < 0.8 else ("hello, ", "hi, "))
        + message
    )
    if not desk.told and rng.random() < 0.35:
        desk.told = True
        fact = rng.choice(
            (
                "my email is {m}",
                "i am {n}, {m}",
                "{m} is my address",
                "you can find me under {m}",
                "{n} here ({m})",
            )
        ).format(m=desk.mail, n=desk.name)
        message = f"{fact}, {message}" if rng.random() < 0.4 else f"{message}. {fact}"
    if rng.random() < 0.5:
        message = message[0].upper() + message[1:]
    desk.talk.user(message + rng.choice(("", ".", "!", "?", ", please.")))


def identify(desk: Desk, must: bool) -> None:
    """Find the customer, and verify them now and then, as the policy may ask."""
    rng, talk = desk.rng, desk.talk
    if (must and not desk.known) or (not desk.known and rng.random() < 0.25):
        if not desk.told:
            talk.say(rng.choice(("What is your email?", "What is your email address?")))
            talk.user(
                rng.choice(
                    ("{}", "it is {}", "{}, please", "my email is {}", "sure, {}")
                ).format(desk.mail)
            )
            desk.told = True
        desk.call(
            "customer",
            desk.shown(
                {
                    "customer_id": desk.customer,
                    "name": desk.name,
                    "postcode": desk.postcode,
                }
                if rng.random() < 0.5
                else {"id": desk.customer, "name": desk.name}
            ),
            email=desk.mail,
        )
        desk.known = True
    if (
        desk.known
        and not desk.verified
        and "verify" in desk.lines
        and rng.random() < 0.5
    ):
        talk.say(
            rng.choice(("What is your postcode?", "Please tell me your postcode."))
        )
        talk.user(
            rng.choice(("{}", "it is {}", "{}.", "my postcode is {}")).format(
                desk.postcode
            )
        )
        desk.call("verify", "verified", customer=desk.customer, postcode=desk.postcode)
        desk.verified = True


def about_order(desk: Desk, intent: str) -> None:
    """A request about one order, whose number may have to be asked for or looked up."""
    rng, talk = desk.rng, desk.talk
    number = rng.choice(list(desk.orders))
    order = desk.orders[number]
    item, other = rng.choice(order["items"]), rng.choice(support_words.ITEMS)
    street, city = f"{word(rng).capitalize()} {rng.randint(1, 99)}", value(rng, "city")
    code = value(rng, "code")
    vague = rng.random() < 0.3
    shown = (
        rng.choice(("my order", "my purchase", "an order", "something i bought"))
        if vague
        else rng.choice(
            (
                "order {}",
                "my order {}",
                "the order {}",
                "{}",
                "order number {}",
                "#{}",
                "purchase {}",
            )
        ).format(number)
    )
    ask = desk.pick(
        support_words.ASKS[intent].replace("reimburse-me:", "compensate me for ")
    )
    say(desk, ask.format(o=shown, i=item, j=other, s=street, c=city, k=code))
    if (
        vague
        and "orders" in desk.lines
        and rng.random() < 0.5
        and (len(desk.orders) == 1 or rng.random() < 0.5)
    ):
        identify(desk, must=True)
        rows = [
            desk.shown(
                {"order_id": n, "status": o["status"], "items": ", ".join(o["items"])}
            )
            for n, o in desk.orders.items()
        ]
        desk.call("orders", "\n".join(rows), customer=desk.customer)
        if len(desk.orders) > 1 and intent not in ("return", "exchange"):
            talk.say("Which order?")
            talk.user(
                rng.choice(
                    ("{}", "{}, please", "the one with the {i}", "the {i}")
                ).format(number, i=item)
                if sum(item in o["items"] for o in desk.orders.values()) == 1
                else number
            )
        elif (
            len(desk.orders) > 1
            and sum(item in o["items"] for o in desk.orders.values()) > 1
        ):
            talk.say("Which order?")
            talk.user(number)
    elif vague:
        talk.say(
            rng.choice(
                (
                    "What is the order number?",
                    "Which order?",
                    "What is your order number?",
                )
            )
        )
        talk.user(
            rng.choice(
                ("{}", "it is {}", "order {}", "{}, please", "the number is {}")
            ).format(number)
        )
        identify(desk, must=False)
    else:
        identify(desk, must=False)
    record = desk.shown(
        {
            "order_id": number,
            "status": order["status"],
            "items": ", ".join(order["items"]),
            "total": order["total"],
        }
    )
    looked = intent in ("order", "refund") or rng.random() < 0.45
    if looked:
        desk.call("order", record, order=number)
    act(
        desk,
        intent,
        number,
        {"item": item, "other": other, "street": street, "city": city, "code": code},
        looked,
    )


def act(
    desk: Desk, intent: str, number: str, facts: dict[str, str], looked: bool
) -> None:
    """Do what was asked, unless the order's state forbids it and that is respected."""
    rng, talk, order = desk.rng, desk.talk, desk.orders[number]
    state = order["status"]
    wrong = (intent == "cancel" and state not in ("pending", "processing")) or (
        intent in ("return", "refund", "exchange") and state != "delivered"
    )
    if wrong and looked and rng.random() < 0.45:
        talk.say(
            rng.choice(
                (
                    f"Sorry, the order is {state}.",
                    f"That is not possible, it is {state}.",
                )
            )
        )
        return

    def done(good: str) -> str:
        if wrong and rng.random() < 0.5:
            return f"error: the order is {state}"
        return good

    if intent == "order":
        answer = (
            f"It is {state}." if rng.random() < 0.5 else f"It cost {order['total']}."
        )
        talk.say(answer)
        return
    if intent == "track":
        where = rng.choice(
            ("in transit", "delivered", "at the depot", "not shipped yet", "on its way")
        )
        desk.call(
            "track", desk.shown({"order_id": number, "state": where}), order=number
        )
        talk.say(f"It is {where}.")
        return
    results = {
        "cancel": (done(f"{number} cancelled"), {"order": number}),
        "return": (done("return started"), {"order": number, "item": facts["item"]}),
        "refund": (done("refunded"), {"order": number, "amount": order["total"]}),
        "exchange": (
            done("exchange started"),
            {"order": number, "item": facts["item"], "new": facts["other"]},
        ),
        "address": (
            "address changed",
            {"order": number, "street": facts["street"], "city": facts["city"]},
        ),
        "coupon": (
            rng.choice(("coupon applied", "error: the code is expired")),
            {"order": number, "code": facts["code"]},
        ),
    }
    result, arguments = results[intent]
    desk.call(intent, result, **arguments)
    if result.startswith("error"):
        talk.say(
            rng.choice(("Sorry, that is not possible.", "Sorry, it did not work."))
        )
    else:
        if intent == "cancel":
            order["status"] = "cancelled"
        talk.say(rng.choice(pools.DONE))


def about_customer(desk: Desk, intent: str) -> None:
    """A request that needs the customer's id."""
    rng, topic = desk.rng, text(desk.rng)
    urgency = rng.choice(("low", "medium", "high"))
    quoted = f'"{topic}"' if rng.random() < 0.6 else topic
    ask = desk.pick(support_words.KEYED[intent]).format(t=quoted)
    if intent == "ticket":
        ask += rng.choice(
            (", it is {}", ", priority {}", ", {} priority please")
        ).format(urgency)
    say(desk, ask)
    identify(desk, must=True)
    if intent == "ticket":
        desk.call(
            "ticket",
            f"ticket T-{rng.randint(10, 999)} opened",
            customer=desk.customer,
            subject=topic,
            priority=urgency,
        )
        desk.talk.say(rng.choice(pools.DONE))
    elif intent == "note":
        desk.call("note", "noted", customer=desk.customer, note=topic)
        desk.talk.say(rng.choice(pools.DONE))
    else:
        rows = [
            desk.shown({"order_id": n, "status": o["status"], "total": o["total"]})
            for n, o in desk.orders.items()
        ]
        desk.call("orders", "\n".join(rows), customer=desk.customer)
        desk.talk.say(", ".join(desk.orders) + ".")
