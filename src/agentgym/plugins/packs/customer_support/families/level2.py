"""Create tasks of level 2: a few calls under the rules, or a forbidden request."""

from agentgym.plugins.packs.customer_support.environment import MOST_REFUND, REFUND_DAYS
from agentgym.plugins.packs.customer_support.families.base import (
    Order,
    Story,
    SupportDraft,
    SupportFamily,
    SupportScene,
    SupportStep,
    draft,
)

UNSHIPPED = ("pending", "processing")


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


FAMILIES = (
    SupportFamily("list_orders", 2, _list_orders),
    SupportFamily("complaint", 2, _complaint),
    SupportFamily("cancel", 2, _cancel),
    SupportFamily("change_address", 2, _change_address),
    SupportFamily("address_too_late", 2, _address_too_late),
    SupportFamily("second_refund", 2, _second_refund),
    SupportFamily("late_refund", 2, _late_refund),
    SupportFamily("large_refund", 2, _large_refund),
    SupportFamily("wrong_postcode", 2, _wrong_postcode),
)
