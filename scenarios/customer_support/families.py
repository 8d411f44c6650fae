"""The families (kinds of task), by level.

Level 1: a single call, which no rule forbids. Level 2: a few calls under the rules, or
a forbidden request. Level 3: four or five calls; early results decide later calls.
"""

from collections.abc import Callable
from typing import Any

from agentgym.packs.kit.tasks import Draft, Family, Step

from .environment import MOST_REFUND, REFUND_DAYS, UNSHIPPED
from .story import INTENTS, Order, Story, SupportNames, SupportScene, draft

SupportFamily = Family[SupportNames]


def _track(story: Story) -> Draft:
    order = story.add_order(story.rng.choice(("shipped", "processing", "delivered")))
    story.open(story.ask("track", order=story.number(order)))
    story.do("track_shipment", order_id=order.number)
    return draft(story, every_step=True)


def _details(story: Story) -> Draft:
    story.about("details", story.rng.choice(story.orders), verified=False)
    return draft(story, every_step=True)


def _stock(story: Story) -> Draft:
    rng = story.rng
    products = rng.sample(story.scene.names.products, 4)
    rows = [[name, rng.choice((0, rng.randint(1, 50)))] for name in products]
    story.open(story.ask("stock", product=products[0]))
    story.do("check_stock", product=products[0])
    return draft(story, every_step=True, products=rows)


def _human(story: Story) -> Draft:
    story.open(story.ask("human"))
    story.do("escalate")
    return draft(story, every_step=True, escalations=[["asked for"]])


def _list_orders(story: Story) -> Draft:
    story.open(story.ask("list"), verified=True)
    story.do("list_orders", customer_id=story.customer)
    return draft(story, every_step=True)


def _ticket(story: Story) -> dict[str, Any]:
    subject = story.rng.choice(story.scene.names.subjects)
    return {"subject": subject, "priority": story.rng.choice(("low", "medium", "high"))}


def _complaint(story: Story) -> Draft:
    ticket = _ticket(story)
    story.open(story.ask("complain", **ticket), verified=True)
    story.do("create_ticket", customer_id=story.customer, **ticket)
    return draft(story, tickets=[[story.customer, *ticket.values()]])


def _unshipped(story: Story) -> Order:
    return story.add_order(story.rng.choice(UNSHIPPED))


def _cancelled(story: Story, order: Order) -> Draft:
    story.do("cancel_order", order_id=order.number)
    return draft(story, orders={order.number: {"status": "cancelled"}})


def _moved(story: Story, order: Order, address: dict[str, Any]) -> Draft:
    story.do("update_address", order_id=order.number, **address)
    return draft(story, orders={order.number: address})


def _returned(story: Story, order: Order, item: str, quantity: int = 1) -> Draft:
    more = {"quantity": quantity} if quantity > 1 else {}
    story.do("return_item", order_id=order.number, item=item, **more)
    return draft(story, returns=[[order.number, item, quantity]])


def _cancel(story: Story) -> Draft:
    order = _unshipped(story)
    story.about("cancel", order)
    return _cancelled(story, order)


def _change_address(story: Story) -> Draft:
    order = _unshipped(story)
    address = story.new_address()
    story.about("address", order, **address)
    return _moved(story, order, address)


def _address_too_late(story: Story) -> Draft:
    order = story.add_order("shipped")
    story.about("address", order, verified=False, **story.new_address())
    return draft(story, refuse=True)


def _second_refund(story: Story) -> Draft:
    order = story.add_order("delivered", refunded=True)
    story.about("refund", order, verified=False)
    return draft(story, refuse=True)


def _refund_to_escalate(story: Story, order: Order) -> Draft:
    story.about("refund", order, verified=False)
    story.do("escalate")
    return draft(story, every_step=True, escalations=[["refund"]])


def _late_refund(story: Story) -> Draft:
    days = story.rng.randint(REFUND_DAYS + 5, 99)
    return _refund_to_escalate(story, story.add_order("delivered", days=days))


def _large_refund(story: Story) -> Draft:
    total = round(story.rng.uniform(MOST_REFUND + 10, 900), 2)
    return _refund_to_escalate(story, story.add_order("delivered", total=total))


def _wrong_postcode(story: Story) -> Draft:
    order = _unshipped(story)
    wrong = str(story.rng.randint(1000, 99999))
    while wrong == story.postcode:
        wrong = str(story.rng.randint(1000, 99999))
    story.facts["postcode"] = [story.say("postcode", wrong)]
    story.open(story.ask("cancel", order=story.number(order)), verified=True)
    claimed = {"customer_id": story.customer, "postcode": wrong}
    story.plan[-1] = Step("verify_identity", claimed)
    return draft(story, refuse=True)


def _refund(story: Story) -> Draft:
    order = story.add_order("delivered")
    story.about("refund", order)
    story.do("refund_order", order_id=order.number, amount=order.total)
    return draft(story, refunds=[[order.number, order.total]])


def _return_item(story: Story) -> Draft:
    order = story.add_order(story.rng.choice(("delivered", "shipped")))
    item = story.rng.choice(order.items)[0]
    story.about("return", order, item=item)
    return _returned(story, order, item)


def _cancel_too_late(story: Story) -> Draft:
    """Create a request to cancel a shipped order; its item must be returned instead."""
    order = story.add_order("shipped")
    quantity = story.rng.choice((1, 1, 2, 3))
    item = order.items[0][0]
    order.items = [(item, quantity)]
    story.about("cancel", order)
    return _returned(story, order, item, quantity)


def _forgotten_number(story: Story) -> Draft:
    order = _unshipped(story)
    item = order.items[0][0]
    text = story.ask("cancel", order=story.draw("vague_item", i=item))
    story.open(text, verified=True)
    story.facts["order"] = [f"the one with the {item}"]
    story.do("list_orders", customer_id=story.customer)
    return _cancelled(story, order)


def _wrong_number(story: Story) -> Draft:
    """Create a request with a wrong order number, which the customer corrects later."""
    order = _unshipped(story)
    wrong = story.scene.names.number(story.rng)
    while any(wrong in o.number or o.number in wrong for o in story.orders):
        wrong = story.scene.names.number(story.rng)
    asked = story.ask("cancel", order=story.draw("order", n=wrong))
    story.do("get_order", order_id=wrong)
    story.needs.append("order")
    story.facts["order"] = [story.draw("correct", x=order.number), order.number]
    story.open(asked, verified=True)
    story.do("get_order", order_id=order.number)
    return _cancelled(story, order)


def _changed_mind(story: Story) -> Draft:
    """Create a request to cancel, which the customer replaces by a new address."""
    order = _unshipped(story)
    reference = story.draw("order", n=order.number)
    story.facts["order"] = [story.say("order", order.number)]
    story.open(story.ask("cancel", order=reference), verified=True)
    address = story.new_address()
    other = story.ask("address", order=reference, **address)
    change = story.draw("change", request=_lower(other))
    text = story.facts["postcode"][0].rstrip(".")
    story.facts["postcode"] = [f"{text}. {change}"]
    story.do("get_order", order_id=order.number)
    return _moved(story, order, address)


def _two_requests(story: Story) -> Draft:
    """Create two requests of one customer: to return an item, then a complaint."""
    order = story.add_order("delivered")
    item = story.rng.choice(order.items)[0]
    text = story.ask("return", order=story.number(order, stated=1.0), item=item)
    story.open(text, verified=True)
    story.do("get_order", order_id=order.number)
    story.do("return_item", order_id=order.number, item=item)
    ticket = _ticket(story)
    more = story.ask("complain", **ticket)
    story.later.append(story.draw("more", request=_lower(more)))
    story.do("create_ticket", request=1, customer_id=story.customer, **ticket)
    row = [story.customer, *ticket.values()]
    return draft(story, returns=[[order.number, item, 1]], tickets=[row])


def _lower(text: str) -> str:
    """Return a request with its first letter in lower case, to continue a sentence."""
    return text if text.startswith("I ") else text[0].lower() + text[1:]


def _family(
    name: str, level: int, intent: str, tell: Callable[[Story], Draft]
) -> SupportFamily:
    def make(scene: SupportScene) -> Draft:
        return tell(Story(scene))

    return SupportFamily(name, level, INTENTS[intent], make)


FAMILIES = (
    _family("track", 1, "track", _track),
    _family("order_details", 1, "details", _details),
    _family("check_stock", 1, "stock", _stock),
    _family("ask_for_human", 1, "human", _human),
    _family("list_orders", 2, "list", _list_orders),
    _family("complaint", 2, "complain", _complaint),
    _family("cancel", 2, "cancel", _cancel),
    _family("change_address", 2, "address", _change_address),
    _family("address_too_late", 2, "address", _address_too_late),
    _family("second_refund", 2, "refund", _second_refund),
    _family("late_refund", 2, "refund", _late_refund),
    _family("large_refund", 2, "refund", _large_refund),
    _family("wrong_postcode", 2, "cancel", _wrong_postcode),
    _family("refund", 3, "refund", _refund),
    _family("return_item", 3, "return", _return_item),
    _family("cancel_too_late", 3, "cancel", _cancel_too_late),
    _family("forgotten_number", 3, "cancel", _forgotten_number),
    _family("wrong_number", 3, "cancel", _wrong_number),
    _family("changed_mind", 3, "cancel", _changed_mind),
    _family("two_requests", 3, "return", _two_requests),
)
