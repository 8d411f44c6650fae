"""Built-in scenarios that cannot be made without a data file of their user's."""

from pydoc import locate

from agentgym.scenarios.registry import BUILT_IN


def _wants_data(target: str) -> bool:
    made = locate(target.replace(":", "."))
    return "data" in getattr(made, "options", ())


DATA_SETS = frozenset(n for n, card in BUILT_IN.items() if _wants_data(card.target))
CODE_BENCHMARKS = DATA_SETS - {"bfcl", "harbor", "tau2"}
