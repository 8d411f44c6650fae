"""What a ladder refuses before anything is started or paid, in one sentence."""

from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.prices import FREE, Prices
from agentgym.errors import (
    AgentGymError,
    MissingExtraError,
    ProviderError,
    UsageError,
)
from agentgym.evaluate.criteria import Gate
from agentgym.plugins.improve import terms as module
from agentgym.plugins.improve.terms import (
    Terms,
    check_terms,
    own_model,
    prices_of,
    read_goal,
)
from agentgym.rollout.inspection import AgentReport, RoleFound
from agentgym.scenarios.registry import get_scenario
from tests.rollout.stub_server import LISTED, StubServer

GOAL = Gate("pass_1", 0.9)
PRICED = Prices(prompt=1.0, response=4.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0.9", "give a share and its least value, as in pass_1=0.9"),
        ("pass1=0.9", "Did you mean 'pass_1'?"),
        ("pass_1=0", "met by any agent"),
        ("pass_1=high", "write a share from 0 to 1"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        read_goal(text)
    assert says in str(error.value)


def test_a_goal_is_a_share_and_its_least() -> None:
    assert read_goal("pass_1=0.9") == GOAL


def check(terms: Terms, **settings: Any) -> None:
    config = TrainingConfig.create(framework="native", **{"gpu": "none", **settings})
    check_terms(terms, config, get_scenario("coding"))


@pytest.mark.parametrize(
    ("terms", "settings", "says"),
    [
        (Terms(GOAL), {"gpu": "runpod"}, "agentgym train --gpu runpod"),
        (Terms(GOAL), {"time": "30m"}, "leave it out, and limit --episodes"),
        (Terms(GOAL, reflection="nano"), {}, "not a model that a server answers for"),
        (Terms(GOAL, reflection="openai:x"), {}, "OPENAI_API_KEY"),
        (
            Terms(GOAL, reflection="http://models.invalid/v1#m"),
            {},
            "give --reflection-price-in and --reflection-price-out",
        ),
        (
            Terms(GOAL),
            {"model": "http://models.invalid/v1#m"},
            "give --price-in and --price-out",
        ),
    ],
)
def test_terms_that_cannot_work_are_refused(
    terms: Terms, settings: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError) as error:
        check(terms, **settings)
    assert says in str(error.value)


def test_a_search_that_is_not_installed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    check(Terms(GOAL))
    with StubServer() as server, pytest.raises(MissingExtraError) as error:
        check(Terms(GOAL, reflection=f"{server.endpoint}#m"))
    assert error.value.extra == "improve"


@pytest.mark.parametrize(
    ("models", "error"),
    [((401, "no"), ProviderError), ((200, LISTED[1]), None), ((404, ""), None)],
)
def test_a_key_without_rights_is_seen_before_anything_is_asked(
    models: tuple[int, str], error: type[AgentGymError] | None
) -> None:
    with StubServer(models=models) as server:
        for given in ({"model": f"{server.endpoint}#m"}, {}):
            terms = Terms(GOAL, reflection=f"{server.endpoint}#m")
            if error is None:
                check(terms, **given)
            else:
                with pytest.raises(error, match="refused the key"):
                    check(terms, **given)
        assert server.bodies == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ChatOpenAI gpt-4o-mini", "openai:gpt-4o-mini"),
        ("openai:gpt-4o", "openai:gpt-4o"),
        ("ChatAnthropic claude-x", None),  # its key is not set
        ("FakeListChatModel", None),
    ],
)
def test_an_agent_s_own_model_is_found_where_its_key_is_set(
    words: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    roles = [RoleFound("desk", None, [], words), RoleFound("other", None, [], words)]
    assert own_model(AgentReport("a:b", "langchain", "Graph", "way", roles)) == expected


def test_a_model_on_this_machine_is_free_whatever_prices_are_given() -> None:
    assert prices_of("nano", PRICED) == FREE
    assert prices_of("openai:gpt-4o", PRICED) == PRICED
