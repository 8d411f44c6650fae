"""The scripted customer: answers what is asked, corrects itself, and has an end."""

import itertools

import pytest

from agentgym.core.task import Split
from agentgym.packs.customer_support.environment import Customer
from agentgym.packs.customer_support.scenario import CustomerSupportScenario
from tests.some import some

FACTS = {"email": ["a@b.com"], "postcode": ["1234"], "order": ["it is 77", "78"]}


def customer(*needs: str, later: tuple[str, ...] = ()) -> Customer:
    return Customer(FACTS, needs, later)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What is your email address?", "a@b.com"),
        ("Could I have your POSTCODE?", "1234"),
        ("Please tell me your zip", "1234"),
        ("Which purchase?", "it is 77"),
        ("what is the number", "it is 77"),
        ("Your mail and your postal code?", "a@b.com, 1234"),
    ],
)
def test_facts_are_told_when_asked_for(question: str, answer: str) -> None:
    assert customer().reply(question) == answer


def test_a_fact_asked_again_may_be_corrected_and_is_told_twice_at_most() -> None:
    told = customer("order")
    assert told.reply("Which order?") == "it is 77"
    assert told.reply("There is none. Which order?") == "78"
    assert told.reply("Which order?") is None


def test_a_question_that_nobody_understands_gets_the_next_open_fact() -> None:
    asked = customer("order", "email")
    assert asked.reply("Hm?") == "it is 77"
    assert asked.reply("Grmbl?") == "a@b.com"
    assert asked.reply("Grmbl?") is None


def test_a_statement_gives_nothing_away() -> None:
    puzzled = customer("email")
    assert puzzled.reply("Done.") == "sorry?"
    assert puzzled.reply("Done.") is None
    assert customer().reply("Done.") is None


CLOSINGS = (
    "It has been returned. Is there anything else I can do for your order?",
    "Your order is cancelled. Please let me know if you need anything about it.",
    "Do you need any further help with this order?",
    "Please tell me: any other questions about the order?",
    "Is that all for this order?",
)


@pytest.mark.parametrize("text", CLOSINGS)
def test_a_closing_question_asks_for_no_fact(text: str) -> None:
    assert customer().reply(text) is None
    busy = customer(later=("one more thing",))
    assert busy.reply(text) == "one more thing"
    assert busy.reply(text) is None
    waiting = customer("order", later=("one more thing",))
    assert waiting.reply(text) == "it is 77"  # it could not be done without


@pytest.mark.parametrize("text", ["", "?", "What is your email?", "order?", "Done."])
def test_an_agent_that_only_talks_comes_to_an_end_and_earns_nothing(text: str) -> None:
    scenario = CustomerSupportScenario()
    for task in some(scenario.tasks(Split.TRAIN, 0, 40)):
        environment = scenario.create_environment(task)
        replies = itertools.takewhile(
            lambda reply: reply is not None,
            (environment.user_reply(text) for _ in range(50)),
        )
        assert len(list(replies)) <= 8
        environment.close()
