"""The scenarios that agentgym ships, and their rows in the list of scenarios."""

from agentgym.scenarios.packs import ScenarioCard

CARDS = [
    ScenarioCard(
        "coding",
        "Find, read, edit, test and repair code in a small Python package.",
        "beginner",
        "10 to 20 minutes on 2 cores",
        "agentgym.packs.coding.scenario:CodingScenario",
    ),
    ScenarioCard(
        "code_review",
        "Review small Python packages and report defects.",
        "intermediate",
        "10 to 20 minutes on 2 cores",
        "agentgym.packs.code_review.scenario:CodeReviewScenario",
    ),
    ScenarioCard(
        "qa_testing",
        "Write tests that kill mutants of Python code.",
        "intermediate",
        "10 to 20 minutes on 2 cores",
        "agentgym.packs.qa_testing.scenario:QaTestingScenario",
    ),
    ScenarioCard(
        "customer_support",
        "Help a shop's customers with orders, refunds and complaints.",
        "intermediate",
        "about 25 minutes on 2 cores",
        "agentgym.packs.customer_support.scenario:CustomerSupportScenario",
    ),
    ScenarioCard(
        "flight_booking",
        "Search, book, change and cancel flights by the rules.",
        "intermediate",
        "about 10 minutes on 2 cores, with a warm start",
        "agentgym.packs.flight_booking.scenario:FlightBookingScenario",
    ),
]
