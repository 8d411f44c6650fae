"""Benchmarks as scenarios, and their rows in the list of scenarios."""

from agentgym.scenarios.packs import ScenarioCard


def _card(name: str, description: str, target: str, time: str = "") -> ScenarioCard:
    time = f"for real models; {time or 'minutes to hours, by the model'}"
    return ScenarioCard(name, description, "advanced", time, f"{__name__}.{target}")


CARDS = [
    _card(
        "bfcl",
        "Call the right functions: Berkeley Function Calling Leaderboard v4.",
        "bfcl.scenario:BfclScenario",
        "an hour and more, by the model",
    ),
    _card(
        "humaneval",
        "Complete Python functions: HumanEval.",
        "code.scenario:HumanEvalScenario",
    ),
    _card(
        "humaneval_plus",
        "Complete Python functions: HumanEval+, many more inputs.",
        "code.scenario:HumanEvalPlusScenario",
    ),
    _card(
        "mbpp",
        "Write small Python functions: MBPP, full or sanitized.",
        "code.scenario:MbppScenario",
    ),
    _card(
        "mbpp_plus",
        "Write small Python functions: MBPP+, many more inputs.",
        "code.scenario:MbppPlusScenario",
    ),
    _card(
        "livecodebench",
        "Solve contest problems in Python: LiveCodeBench.",
        "code.scenario:LiveCodeBenchScenario",
    ),
    _card(
        "multipl_e",
        "Complete functions in JavaScript, Go or Rust: MultiPL-E.",
        "code.scenario:MultiPlEScenario",
    ),
    _card(
        "tau2",
        "Customer service with a simulated user: tau2-bench, --data CHECKOUT.",
        "tau2:Tau2Scenario",
        "minutes to hours, by the models",
    ),
]
