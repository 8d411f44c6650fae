"""Create tasks of level 1, which a single call solves; no rule forbids the call."""

from agentgym.plugins.packs.customer_support.families.base import (
    Story,
    SupportDraft,
    SupportFamily,
    SupportScene,
    draft,
)


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


FAMILIES = (
    SupportFamily("track", 1, _track),
    SupportFamily("order_details", 1, _details),
    SupportFamily("check_stock", 1, _stock),
    SupportFamily("ask_for_human", 1, _human),
)
