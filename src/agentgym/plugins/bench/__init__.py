"""Benchmarks as scenarios, and their rows in the list of scenarios."""

from agentgym.scenarios.cards import ScenarioCard

CARDS = [
    ScenarioCard(
        "bfcl",
        "Call the right functions: Berkeley Function Calling Leaderboard v4.",
        "advanced",
        "for real models; an hour and more, by the model",
        "agentgym.plugins.bench.bfcl.scenario:BfclScenario",
    ),
    ScenarioCard(
        "humaneval",
        "Complete Python functions: HumanEval.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:HumanEvalScenario",
    ),
    ScenarioCard(
        "humaneval_plus",
        "Complete Python functions: HumanEval+, many more inputs.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:HumanEvalPlusScenario",
    ),
    ScenarioCard(
        "mbpp",
        "Write small Python functions: MBPP, full or sanitized.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:MbppScenario",
    ),
    ScenarioCard(
        "mbpp_plus",
        "Write small Python functions: MBPP+, many more inputs.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:MbppPlusScenario",
    ),
    ScenarioCard(
        "livecodebench",
        "Solve contest problems in Python: LiveCodeBench.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:LiveCodeBenchScenario",
    ),
    ScenarioCard(
        "multipl_e",
        "Complete functions in JavaScript, Go or Rust: MultiPL-E.",
        "advanced",
        "for real models; minutes to hours, by the model",
        "agentgym.plugins.bench.code.scenario:MultiPlEScenario",
    ),
    ScenarioCard(
        "tau2",
        "Customer service with a simulated user: tau2-bench, --data CHECKOUT.",
        "advanced",
        "for real models; minutes to hours, by the models",
        "agentgym.plugins.bench.tau2.scenario:Tau2Scenario",
    ),
]
