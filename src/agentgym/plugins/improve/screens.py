"""Show the bill of ``agentgym improve``: the results and costs of all that it tried."""

from rich.console import Group, RenderableType
from rich.text import Text

from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration
from agentgym.evaluate.rows import share_span
from agentgym.plugins.improve.bill import Bill
from agentgym.ui.layout import headed

_STYLES = {"met": "bold green", "skipped": "dim", "quoted": "dim"}


def bill_view(bill: Bill) -> RenderableType:
    """Return a view of all ways to improve the agent that were tried, with costs."""
    table = headed(2)
    table.add_column("rung", no_wrap=True)
    for name in ("pass^1 before", "after", "$", "tokens", "time"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("goal")
    for rung in bill.rungs:
        tokens = rung.prompt_tokens + rung.response_tokens
        table.add_row(
            rung.name,
            _share(rung.before),
            _share(rung.after),
            f"{rung.dollars:.2f}",
            f"{tokens:,}",
            duration(rung.seconds),
            Text(rung.status, _STYLES.get(rung.status, "")),
        )
    lines = [Text(f"  {rung.name}: {rung.words}") for rung in bill.rungs if rung.words]
    total = Text(
        f"Spent ${bill.dollars:.2f} of at most ${bill.max_cost:.2f}. Goal: {bill.goal}."
    )
    shown: list[RenderableType] = [Text("Bill", "bold"), table, *lines, total]
    if bill.prompts is not None:
        use = f"--set prompts={bill.prompts}"
        shown.append(Text(f"Better prompts: {bill.prompts} (train and eval: {use})."))
    if bill.agent:
        load = f'TrainedAgent.load("{bill.agent}")'
        shown.append(Text(f"Trained agent: {bill.agent}, {load}; run {bill.run}."))
    shown += [Text(bill.ended, "bold"), Text(f"This bill: {bill.folder}/bill.json")]
    return Group(*shown)


def _share(found: Metrics | None) -> str:
    return "" if found is None else share_span(found.pass_1)
