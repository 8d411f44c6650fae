"""The engine with a scripted driver: updates, checkpoints, weights that differ."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import NOT_FINITE
from agentgym.core.trajectory import ModelCall
from agentgym.engines.base import TrainedToken, TrainingBatch, TrainingSequence
from agentgym.errors import CheckpointError, EngineError
from agentgym.models.template import template_text
from agentgym.plugins.verl.engine import VerlEngine
from agentgym.plugins.verl.launch import VerlDriver

BATCH = TrainingBatch(
    [TrainingSequence("", 0, [3, 4, 5, 6], [TrainedToken(2, -0.5, 1.0)])]
)
Make = Callable[..., VerlEngine]


@pytest.fixture
def make(
    scripted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Yield what makes an engine whose verl follows a script."""
    import agentgym.plugins.verl.engine as module

    given = module.verl_settings
    with ExitStack() as stack:

        def engine(script: str = "", **settings: Any) -> VerlEngine:
            monkeypatch.setattr(
                module, "verl_settings", lambda c: given(c) | {"script": script}
            )
            config = TrainingConfig.create(output=tmp_path, **settings)
            made = VerlEngine.create(config)
            stack.callback(made.close)
            return made

        yield engine


@pytest.mark.slow
def test_an_update_counts_on_and_its_servers_version_with_it(
    make: Make, tmp_path: Path
) -> None:
    engine = make()
    assert engine.policy.servers == ["http://127.0.0.1:9/v1"]
    assert (engine.step, engine.policy.version) == (0, 0)
    done = engine.update(BATCH)
    assert (done.step, done.loss, done.grad_norm, done.refused) == (1, 1.0, 1.0, "")
    assert (engine.step, engine.policy.version) == (1, 1)
    assert engine.update(TrainingBatch()).loss == 0.0
    assert engine.step == 2  # an empty batch is an update too
    labels = engine.label(ModelCall(prompt_ids=[30], response_ids=[40, 50, 60]))
    assert labels is not None
    assert len(labels) == 3
    engine.export(tmp_path / "agent")
    assert (tmp_path / "agent" / "tokenizer.json").is_file()


@pytest.mark.slow
def test_gradients_that_are_not_finite_are_told(make: Make) -> None:
    engine = make("not finite")
    assert engine.update(BATCH).refused == NOT_FINITE
    assert math.isnan(engine.imitation().learn(BATCH, share=1.0))


@pytest.mark.slow
def test_servers_with_other_weights_than_the_learners_are_an_error(make: Make) -> None:
    engine = make("other weights")
    with pytest.raises(EngineError, match=r"0\.500 nats off the learner's"):
        engine.update(BATCH)
    assert engine.step == 0


@pytest.mark.slow
def test_a_warm_start_is_imitated_and_its_weights_are_sent_once(make: Make) -> None:
    engine = make()
    with engine.sampling():  # nothing was imitated, so nothing is sent
        pass
    imitation = engine.imitation()
    assert imitation.learn(BATCH, share=0.25) == 0.5
    assert imitation.measure(BATCH) == 0.25
    for _ in range(2):
        with engine.sampling():
            pass
    assert engine.step == 0
    after, usual = engine.update(BATCH), make().update(BATCH)
    assert after.step == usual.step == 1
    assert after.kl == pytest.approx(usual.kl / 4)  # the script says the rate there


@pytest.mark.slow
def test_a_checkpoint_is_continued_from(make: Make, tmp_path: Path) -> None:
    first, folder = make(), tmp_path / "step"
    folder.mkdir()
    first.update(BATCH)
    first.save_checkpoint(folder)
    second = make()
    second.load_checkpoint(folder)
    assert (second.step, second.policy.version) == (1, 1)
    assert second.update(BATCH).step == 2


@pytest.mark.slow
def test_another_or_a_broken_checkpoint_is_refused(make: Make, tmp_path: Path) -> None:
    engine, folder = make(), tmp_path / "step"
    folder.mkdir()
    engine.save_checkpoint(folder)
    manifest = folder / "engine.json"
    whole = manifest.read_text()

    def refused(why: str) -> None:
        with pytest.raises(CheckpointError, match=why):
            engine.load_checkpoint(folder)

    for change, why in (
        ({"engine": "local"}, "is not a checkpoint of engine verl"),
        ({"model": {"name": "another"}}, "'another'"),
    ):
        manifest.write_text(json.dumps({**json.loads(whole), **change}))
        refused(why)
    manifest.write_text(whole)
    file = folder / "verl" / "rank_0.pt"
    file.write_text("")
    refused("it has 0 bytes and not 1")
    file.unlink()
    refused("it has 0 bytes and not 1")
    manifest.unlink()
    refused("cannot be read")


@pytest.mark.slow
def test_a_folder_that_another_machine_does_not_share_is_an_error(
    make: Make, tmp_path: Path
) -> None:
    (tmp_path / "step").mkdir()
    with pytest.raises(EngineError, match="Put --output on a folder that all"):
        make("elsewhere").save_checkpoint(tmp_path / "step")


@pytest.mark.slow
def test_the_template_and_its_variables_reach_the_servers(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, Any]] = []
    start = VerlDriver.start

    def noted(driver: VerlDriver, given: dict[str, Any]) -> Any:
        begun.append(given)
        return start(driver, given)

    monkeypatch.setattr(VerlDriver, "start", noted)
    switch = "{% if enable_thinking %}<think>{% endif %}"
    (tmp_path / "own.jinja").write_text(template_text("hermes") + switch)
    engine = make(
        chat_template=template_text(str(tmp_path / "own.jinja")),
        thinking="off",
        chat_template_kwargs={"effort": "low"},
    )

    given = begun[0]["actor_rollout_ref.rollout.engine_kwargs.vllm.chat_template"]
    assert given.endswith(switch)
    variables = {"enable_thinking": False, "effort": "low"}
    assert engine.policy.template_variables == variables
