"""What ``gpu = "auto"`` makes of a model and a machine."""

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.plugins.cloud import auto
from agentgym.plugins.cloud.base import Offer
from agentgym.train.places import choose_machine, expected_time
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod

CPU = Offer("local", "CPU", "", 0, 0.0, 32.0)
BIG = "Qwen/Qwen3-4B"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a CPU and 32 GB alone."""
    monkeypatch.setattr(auto, "local_offers", lambda: [CPU])
    monkeypatch.setattr(auto, "_has_gpu", lambda: False)


def gpu(model: str = BIG, **settings: object) -> str:
    return choose_machine(TrainingConfig.create(model=model, **settings)).gpu


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "nano"},
        {"model": "Qwen/Qwen2.5-0.5B-Instruct"},
        {"model": "no/size"},
        {"deterministic": True},
        {"gpu": "none"},
        {"engine": "verl"},
    ],
    ids=str,
)
def test_what_trains_here_today_still_does(settings: dict[str, object]) -> None:
    assert gpu(**{"model": BIG, **settings}) == settings.get("gpu", "auto")  # type: ignore[arg-type]


def test_a_gpu_that_is_large_enough_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Offer("local", "GPU 0", "L4", 1, 24.0, 32.0)
    monkeypatch.setattr(auto, "local_offers", lambda: [large])
    assert gpu() == "auto"
    with pytest.raises(ComputeError, match="the GPU of this machine has 24 GB"):
        gpu("Qwen/Qwen3-14B")


def test_the_hours_of_a_run_here_are_those_of_a_quote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = TrainingConfig.create(model=BIG, max_tokens=256, episodes=1000)
    assert expected_time(config) == ""
    slow, fast = (Offer("local", "GPU 0", each, 1, 24.0) for each in ("L4", "A100"))
    hours = []
    for offer in (slow, fast):
        monkeypatch.setattr(auto, "local_offers", lambda o=offer: [o])
        told = expected_time(config)
        assert f"at a speed of {offer.gpu} that was assumed, not measured" in told
        hours.append(float(told.split()[1]))
    assert hours[0] == pytest.approx(5 * hours[1], abs=0.3)
    alone = expected_time(config.replaced(engine="local"))
    assert float(alone.split()[1]) > hours[1], "it samples more slowly than vLLM"
    assert expected_time(config.replaced(gpu="none")) == ""


def test_another_machine_chooses_the_engine_if_vllm_suits_the_model() -> None:
    def engine(model: str = BIG, **settings: object) -> str:
        given = {"gpu": "ssh:me@box", **settings}
        return choose_machine(TrainingConfig.create(model=model, **given)).engine

    assert engine() == engine("some/unknown-model") == "auto"
    assert engine("nano") == engine(lora_rank=0) == "local"
    assert engine(train_roles=["a"], role_adapters=True) == "local"
    assert engine(vllm={"max_num_seqs": 8}) == engine(engine="vllm") == "vllm"
    assert engine(engine="local") == "local"
    assert engine("nano", gpu="auto") == "auto"


def test_without_a_key_it_says_which_to_give() -> None:
    with pytest.raises(ComputeError) as caught:
        gpu()
    for words in ("19 GB", "no GPU", "--gpu none"):
        assert words in str(caught.value)
    assert "RUNPOD_API_KEY (runpod) or LAMBDA_API_KEY (lambda)" in str(caught.value)


@pytest.mark.slow
def test_the_cheapest_of_all_providers_is_chosen(
    runpod: FakeRunPod, lambda_cloud: FakeLambda
) -> None:
    assert gpu() == "runpod"
    runpod.gpus = [each for each in runpod.gpus if each["memory"] > 24]
    assert gpu("Qwen/Qwen3-14B") in ("runpod", "lambda")
    assert not [asked for asked in runpod.asked if asked.method == "POST"]
