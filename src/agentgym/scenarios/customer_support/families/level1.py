"""Level 1: one call is right, and no rule stands in its way."""

from agentgym.scenarios.customer_support.families.base import (
    Draft,
    Family,
    Scene,
    Story,
    draft,
)


def _track(scene: Scene) -> Draft:
    story = Story(scene)
    order = story.add_order(scene.rng.choice(("shipped", "processing", "delivered")))
    story.open(story.ask("track", order=story.number(order)))
    story.do("track_shipment", order_id=order.number)
    return draft(story, every_step=True)


def _details(scene: Scene) -> Draft:
    story = Story(scene)
    order = scene.rng.choice(story.orders)
    story.open(story.ask("details", order=story.number(order)))
    story.do("get_order", order_id=order.number)
    return draft(story, every_step=True)


def _stock(scene: Scene) -> Draft:
    rng = scene.rng
    story = Story(scene)
    products = rng.sample(scene.names.products, 4)
    rows = [[name, rng.choice((0, rng.randint(1, 50)))] for name in products]
    story.open(story.ask("stock", product=products[0]))
    story.do("check_stock", product=products[0])
    return draft(story, every_step=True, products=rows)


def _human(scene: Scene) -> Draft:
    story = Story(scene)
    story.open(story.ask("human"))
    story.do("escalate")
    return draft(story, every_step=True, escalations=[["asked for"]])


FAMILIES = (
    Family("track", 1, _track),
    Family("order_details", 1, _details),
    Family("check_stock", 1, _stock),
    Family("ask_for_human", 1, _human),
)
