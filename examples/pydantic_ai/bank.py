"""A bank's support: an agent of pydantic-ai with dependencies and a toolset."""

from dataclasses import dataclass, field

from pydantic_ai import Agent, FunctionToolset, RunContext


@dataclass
class Bank:
    """What the tools of one conversation act on."""

    customer: str = "Ann"
    balances: dict[str, int] = field(
        default_factory=lambda: {"savings": 1200, "current": 340, "holiday": 75}
    )
    blocked: list[str] = field(default_factory=list)


cards = FunctionToolset[Bank]()
support = Agent(
    "openai:gpt-5-mini",
    name="support",
    deps_type=Bank,
    toolsets=[cards],
    instructions="You are the support of a bank. Use the tools, then answer shortly.",
    defer_model_check=True,
)


@support.instructions
def customer(ctx: RunContext[Bank]) -> str:
    """Say who asks."""
    return f"The customer is {ctx.deps.customer}."


@support.tool
def balance(ctx: RunContext[Bank], account: str) -> str:
    """Say how much money an account holds."""
    return f"{ctx.deps.balances.get(account, 0)} euros"


@support.tool
def transfer(ctx: RunContext[Bank], source: str, target: str, euros: int) -> str:
    """Move money from one account to another."""
    ctx.deps.balances[source] -= euros
    ctx.deps.balances[target] += euros
    return f"{euros} euros moved to {target}."


@cards.tool
def block_card(ctx: RunContext[Bank], digits: str) -> str:
    """Block the card whose number ends with these four digits."""
    ctx.deps.blocked.append(digits)
    return f"Card {digits} is blocked."


def bank_of(task: object) -> Bank:
    """Return the bank of a task of training."""
    return Bank()


if __name__ == "__main__":
    bank = Bank()
    print(support.run_sync("Block my card 4711!", deps=bank).output, bank.blocked)
