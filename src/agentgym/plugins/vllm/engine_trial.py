"""Test an engine: start it with the built-in policy nano, and send one request."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agentgym.core.background import in_background
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, Policy, ServedPolicy
from agentgym.engines.base import EngineFactory
from agentgym.engines.environments import Checked
from agentgym.errors import AgentGymError, EngineError
from agentgym.models.folder import NANO

_ANSWERS_S = 120.0


def with_trial(
    found: Sequence[Checked], factory: EngineFactory, engine: str, gpu: str = "auto"
) -> Iterator[Checked]:
    """Yield the checks ``found``; if all passed, also the check of a started engine."""
    yield from found
    if all(each.is_good for each in found):
        yield _trial(factory, engine, gpu)
    else:
        yield Checked(
            "start", False, "nothing was started: see the missing parts above"
        )


def _trial(factory: EngineFactory, engine: str, gpu: str) -> Checked:
    """Start an engine with the tiny model nano, and check that it answers."""
    import httpx

    begun = time.monotonic()
    with TemporaryDirectory(prefix="agentgym-check-") as folder:
        config = TrainingConfig.create(
            engine=engine, model=NANO, gpu=gpu, output=Path(folder)
        )
        try:
            _ask(factory, config)
        except (AgentGymError, httpx.HTTPError) as error:
            return Checked("start", False, f"{NANO} did not answer: {error}")
    took = time.monotonic() - begun
    return Checked("start", True, f"{NANO} answered, {took:.0f} s after its start")


def _ask(factory: EngineFactory, config: TrainingConfig) -> None:
    engine = factory.create(config)
    try:
        with engine.sampling():
            policy = engine.policy
            if isinstance(policy, ServedPolicy):
                _ask_server(policy)
            elif isinstance(policy, Policy):
                in_background(_ask_policy(policy))
    finally:
        engine.close()


async def _ask_policy(policy: Policy) -> None:
    said = [{"role": "user", "content": "Hello"}]
    try:
        await policy.chat(ChatRequest(said, temperature=0.0, max_tokens=8))
    finally:
        await policy.release()


def _ask_server(policy: ServedPolicy) -> None:
    import httpx

    answer = httpx.post(
        f"{policy.servers[0]}/chat/completions",
        json={
            "model": policy.model_name,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 8,
            "temperature": 0.0,
        },
        headers={"Authorization": f"Bearer {policy.api_key}"},
        timeout=_ANSWERS_S,
        trust_env=False,
    )
    if answer.is_error:
        failure = f"{answer.status_code}, {answer.text[:300]}"
        raise EngineError(f"Its server answered {failure}.")
