"""The families (kinds of task), by level.

Level 1: a single call, which no rule forbids. Level 2: a few calls under the rules, or
a forbidden request. Level 3: four or five calls; early results decide later calls.
"""

from . import talk
from .environment import MOST_REFUND, REFUND_DAYS
from .story import (
    Order,
    Story,
    SupportDraft,
    SupportFamily,
    SupportScene,
    SupportStep,
    draft,
)

UNSHIPPED = ("pending", "processing")


def _track(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(("shipped", "processing", "delivered")))
    story.open(story.ask("track", order=story.number(order)))
    story.do("track_shipment", order_id=order.number)
    return draft(story, every_step=True)


def _details(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = scene.rng.choice(story.orders)
    story.open(story.ask("details", order=story.number(order)))
    story.do("get_order", order_id=order.number)
    return draft(story, every_step=True)


def _stock(scene: SupportScene) -> SupportDraft:
    rng = scene.rng
    story = Story(scene)
    products = rng.sample(scene.names.products, 4)
    rows = [[name, rng.choice((0, rng.randint(1, 50)))] for name in products]
    story.open(story.ask("stock", product=products[0]))
    story.do("check_stock", product=products[0])
    return draft(story, every_step=True, products=rows)


def _human(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    story.open(story.ask("human"))
    story.do("escalate")
    return draft(story, every_step=True, escalations=[["asked for"]])


def _list_orders(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    story.open(story.ask("list"), verified=True)
    story.do("list_orders", customer_id=story.customer)
    return draft(story, every_step=True)


def _complaint(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    subject = scene.rng.choice(scene.names.subjects)
    priority = scene.rng.choice(("low", "medium", "high"))
    text = story.ask("complain", subject=subject, priority=priority)
    story.open(text, verified=True)
    row = [story.customer, subject, priority]
    story.do("create_ticket", customer_id=row[0], subject=subject, priority=priority)
    return draft(story, tickets=[row])


def _cancel(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    story.open(story.ask("cancel", order=story.number(order)), verified=True)
    story.do("get_order", order_id=order.number)
    story.do("cancel_order", order_id=order.number)
    return draft(story, orders={order.number: {"status": "cancelled"}})


def _change_address(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    street, city = story.street(), scene.rng.choice(scene.names.cities)
    text = story.ask("address", order=story.number(order), street=street, city=city)
    story.open(text, verified=True)
    story.do("get_order", order_id=order.number)
    story.do("update_address", order_id=order.number, street=street, city=city)
    return draft(story, orders={order.number: {"street": street, "city": city}})


def _address_too_late(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order("shipped")
    street, city = story.street(), scene.rng.choice(scene.names.cities)
    number = story.number(order)
    story.open(story.ask("address", order=number, street=street, city=city))
    story.do("get_order", order_id=order.number)
    return draft(story, refuse=True)


def _refuse_refund(story: Story, order: Order, *, escalate: bool) -> SupportDraft:
    story.open(story.ask("refund", order=story.number(order)))
    story.do("get_order", order_id=order.number)
    if not escalate:
        return draft(story, refuse=True)
    story.do("escalate")
    return draft(story, every_step=True, escalations=[["refund"]])


def _second_refund(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order("delivered", refunded=True)
    return _refuse_refund(story, order, escalate=False)


def _late_refund(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    days = scene.rng.randint(REFUND_DAYS + 5, 99)
    return _refuse_refund(story, story.add_order("delivered", days=days), escalate=True)


def _large_refund(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    total = round(scene.rng.uniform(MOST_REFUND + 10, 900), 2)
    order = story.add_order("delivered", total=total)
    return _refuse_refund(story, order, escalate=True)


def _wrong_postcode(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    wrong = str(scene.rng.randint(1000, 99999))
    while wrong == story.postcode:
        wrong = str(scene.rng.randint(1000, 99999))
    story.facts["postcode"] = [story.say("postcode", wrong)]
    story.open(story.ask("cancel", order=story.number(order)), verified=True)
    claimed = {"customer_id": story.customer, "postcode": wrong}
    story.plan[-1] = SupportStep("verify_identity", claimed)
    return draft(story, refuse=True)


def _refund(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order("delivered")
    story.open(story.ask("refund", order=story.number(order)), verified=True)
    story.do("get_order", order_id=order.number)
    story.do("refund_order", order_id=order.number, amount=order.total)
    return draft(story, refunds=[[order.number, order.total]])


def _return_item(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(("delivered", "shipped")))
    item = scene.rng.choice(order.items)[0]
    text = story.ask("return", order=story.number(order), item=item)
    story.open(text, verified=True)
    story.do("get_order", order_id=order.number)
    story.do("return_item", order_id=order.number, item=item)
    return draft(story, returns=[[order.number, item, 1]])


def _cancel_too_late(scene: SupportScene) -> SupportDraft:
    """Create a request to cancel a shipped order; its item must be returned instead."""
    story = Story(scene)
    order = story.add_order("shipped")
    quantity = scene.rng.choice((1, 1, 2, 3))
    item = order.items[0][0]
    order.items = [(item, quantity)]
    story.open(story.ask("cancel", order=story.number(order)), verified=True)
    story.do("get_order", order_id=order.number)
    more = {"quantity": quantity} if quantity > 1 else {}
    story.do("return_item", order_id=order.number, item=item, **more)
    return draft(story, returns=[[order.number, item, quantity]])


def _forgotten_number(scene: SupportScene) -> SupportDraft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    item = order.items[0][0]
    text = story.ask("cancel", order=story.draw("vague_item", i=item))
    story.open(text, verified=True)
    story.facts["order"] = [f"the one with the {item}"]
    story.do("list_orders", customer_id=story.customer)
    story.do("cancel_order", order_id=order.number)
    return draft(story, orders={order.number: {"status": "cancelled"}})


def _wrong_number(scene: SupportScene) -> SupportDraft:
    """Create a request with a wrong order number, which the customer corrects later."""
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    wrong = scene.names.number(scene.rng)
    while any(wrong in o.number or o.number in wrong for o in story.orders):
        wrong = scene.names.number(scene.rng)
    asked = story.ask("cancel", order=talk.order(scene.rng, scene.split, wrong))
    story.do("get_order", order_id=wrong)
    story.needs.append("order")
    story.facts["order"] = [story.draw("correct", x=order.number), order.number]
    story.open(asked, verified=True)
    story.do("get_order", order_id=order.number)
    story.do("cancel_order", order_id=order.number)
    return draft(story, orders={order.number: {"status": "cancelled"}})


def _changed_mind(scene: SupportScene) -> SupportDraft:
    """Create a request to cancel, which the customer replaces by a new address."""
    story = Story(scene)
    order = story.add_order(scene.rng.choice(UNSHIPPED))
    reference = talk.order(scene.rng, scene.split, order.number)
    story.facts["order"] = [story.say("order", order.number)]
    story.open(story.ask("cancel", order=reference), verified=True)
    street, city = story.street(), scene.rng.choice(scene.names.cities)
    other = story.ask("address", order=reference, street=street, city=city)
    change = story.draw("change", request=_lower(other))
    text = story.facts["postcode"][0].rstrip(".")
    story.facts["postcode"] = [f"{text}. {change}"]
    story.do("get_order", order_id=order.number)
    story.do("update_address", order_id=order.number, street=street, city=city)
    return draft(story, orders={order.number: {"street": street, "city": city}})


def _two_requests(scene: SupportScene) -> SupportDraft:
    """Create two requests of one customer: to return an item, then a complaint."""
    story = Story(scene)
    order = story.add_order("delivered")
    item = scene.rng.choice(order.items)[0]
    text = story.ask("return", order=story.number(order, stated=1.0), item=item)
    story.open(text, verified=True)
    story.do("get_order", order_id=order.number)
    story.do("return_item", order_id=order.number, item=item)
    subject = scene.rng.choice(scene.names.subjects)
    priority = scene.rng.choice(("low", "medium", "high"))
    more = story.ask("complain", subject=subject, priority=priority)
    story.later.append(story.draw("more", request=_lower(more)))
    ticket = [story.customer, subject, priority]
    story.do(
        "create_ticket",
        request=1,
        customer_id=story.customer,
        subject=subject,
        priority=priority,
    )
    return draft(story, returns=[[order.number, item, 1]], tickets=[ticket])


def _lower(text: str) -> str:
    """Return a request with its first letter in lower case, to continue a sentence."""
    return text if text.startswith("I ") else text[0].lower() + text[1:]


FAMILIES = (
    SupportFamily("track", 1, _track),
    SupportFamily("order_details", 1, _details),
    SupportFamily("check_stock", 1, _stock),
    SupportFamily("ask_for_human", 1, _human),
    SupportFamily("list_orders", 2, _list_orders),
    SupportFamily("complaint", 2, _complaint),
    SupportFamily("cancel", 2, _cancel),
    SupportFamily("change_address", 2, _change_address),
    SupportFamily("address_too_late", 2, _address_too_late),
    SupportFamily("second_refund", 2, _second_refund),
    SupportFamily("late_refund", 2, _late_refund),
    SupportFamily("large_refund", 2, _large_refund),
    SupportFamily("wrong_postcode", 2, _wrong_postcode),
    SupportFamily("refund", 3, _refund),
    SupportFamily("return_item", 3, _return_item),
    SupportFamily("cancel_too_late", 3, _cancel_too_late),
    SupportFamily("forgotten_number", 3, _forgotten_number),
    SupportFamily("wrong_number", 3, _wrong_number),
    SupportFamily("changed_mind", 3, _changed_mind),
    SupportFamily("two_requests", 3, _two_requests),
)
