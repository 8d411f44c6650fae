"""What a run is said to cost, and which offers are for it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ComputeError, NoCapacityError, UsageError
from agentgym.plugins.cloud.base import Offer
from agentgym.plugins.cloud.quote import (
    LOCAL_SPEED,
    Effort,
    Need,
    Quote,
    choose,
    fits,
    need_of,
    quotes_of,
)

SMALL, L4 = ("RTX A4000", 16, 0.25), ("L4", 24, 0.43)
RTX, A100 = ("RTX 4090", 24, 0.69), ("A100 PCIe", 80, 1.64)
MODEL = "Qwen/Qwen3-4B"


def offers(*kinds: tuple[str, int, float], **more: bool) -> list[Offer]:
    return [
        Offer("runpod", f"NVIDIA {gpu}", gpu, 1, memory, hourly=hourly, **more)
        for gpu, memory, hourly in kinds
    ]


def chosen(found: list[Offer], model: str = MODEL, **settings: object) -> list[Quote]:
    config = TrainingConfig.create(model=model, **settings)
    return choose(found, need_of(config), Effort(10_000, 3_000, 300.0), config)


def test_total_is_hours_by_price_and_hours_are_explained() -> None:
    [quote] = chosen(offers(L4))
    assert quote.tokens_per_second == 250  # 1,000 at a billion parameters
    assert quote.hours == pytest.approx(0.2 + 23_000 * 300 / 250 / 3600)
    assert quote.total == pytest.approx(quote.hours * 0.43)
    assert quote.limit == pytest.approx(3 * quote.total)
    for words in ("10,000 training", "3,000 measured", "250 tokens/s (assumed, not"):
        assert words in quote.reasoning
    assert chosen(offers(L4), **{"rent.max_cost": 9.0})[0].limit == 9.0


def test_a_time_limit_bounds_the_hours() -> None:
    config = TrainingConfig.create(model=MODEL, time="30m")
    effort = Effort.of(config)
    [quote] = choose(offers(L4), need_of(config), effort, config)
    assert quote.hours == pytest.approx(0.2 + 0.5)
    assert quote.reasoning.endswith("as a measured one), and at most 30 min 0 s")


@pytest.mark.parametrize(
    ("gpu", "speed"),
    [
        ("A100 PCIe", 5000),
        ("A10", 1500),
        ("A40", 2000),
        ("RTX A4000", 800),
        ("L40S", 3500),
        ("L4", 1000),
        ("H200 SXM", 9000),
        ("Something New", 800),
    ],
)
def test_speeds_go_by_the_whole_name(gpu: str, speed: float) -> None:
    [quote] = chosen(offers((gpu, 80, 1.0)), "some/model-1B")
    with_vllm = replace(quote, need=replace(quote.need, engine="vllm"))
    assert with_vllm.tokens_per_second == speed
    assert quote.tokens_per_second == min(speed, LOCAL_SPEED)


def test_a_model_that_fits_nowhere() -> None:
    with pytest.raises(
        ComputeError, match=r"no single GPU of runpod.*\(the largest 80"
    ):
        chosen(offers(L4, A100), "Qwen/Qwen3-235B-A22B")
    with pytest.raises(ComputeError, match="lora_rank = 16"):
        chosen(offers(L4), "Qwen/Qwen3-14B", lora_rank=0)
    assert not fits(
        Offer("local", "CPU", "", 0, 0.0, 999.0), need_of(config_of("nano"))
    )


def config_of(model: str) -> TrainingConfig:
    return TrainingConfig.create(model=model)


def test_what_is_taken_is_not_offered() -> None:
    with pytest.raises(NoCapacityError, match="taken at present: L4, RTX 4090"):
        chosen(offers(L4, RTX, is_available=False))
    [quote] = chosen([*offers(L4, is_available=False), *offers(RTX)])
    assert quote.offer.gpu == "RTX 4090"


def test_a_cap_at_the_list_price_of_a_gpu_leaves_its_disk_out() -> None:
    [gpu] = offers(L4)
    whole = replace(gpu, hourly=0.43 + 0.0137, disk_hourly=0.0137)
    told = r"\$0.45 an hour, its disk included \(.*--max-hourly is \$0.44"
    with pytest.raises(UsageError, match=told):
        chosen([whole], **{"rent.max_hourly": 0.44})
    [quote] = chosen([whole], **{"rent.max_hourly": 0.45})
    assert quote.total == pytest.approx(quote.hours * 0.4437)


def test_caps() -> None:
    assert {
        q.offer.gpu for q in chosen(offers(L4, RTX), **{"rent.max_hourly": 0.5})
    } == {"L4"}
    with pytest.raises(UsageError, match=r"\$0.43 an hour.*--max-hourly is \$0.30"):
        chosen(offers(L4, RTX), **{"rent.max_hourly": 0.30})
    with pytest.raises(UsageError, match=r"more than --max-cost \$0.50.*tokens/s"):
        chosen(offers(L4, RTX), **{"rent.max_cost": 0.50})


@pytest.mark.slow
def test_vllm_is_quoted_where_its_room_can_be_rented() -> None:
    def engines(*kinds: tuple[str, int, float], **settings: object) -> set[str]:
        config = TrainingConfig.create(model=MODEL, gpu="runpod", **settings)
        return {quote.need.engine for quote in quotes_of(offers(*kinds), config)}

    small = ("RTX 4000 Ada", 20, 0.3)
    assert engines(L4, A100) == engines(small, L4) == {"vllm"}
    assert engines(small) == engines(L4, engine="local") == {"local"}
    config = TrainingConfig.create(model=MODEL, gpu="runpod")
    [quote] = quotes_of(offers(small, L4), config)
    told = " ".join(quote.words())
    assert (quote.offer.gpu, quote.effort.setup_minutes) == ("L4", 20)
    for words in ("vLLM included", "--engine local leaves it out"):
        assert words in told
    cost = rf"about \${quote.most:.2f} .*more than --max-cost"  # with vLLM, not local
    with pytest.raises(UsageError, match=cost):
        quotes_of(offers(L4), config.replaced(**{"rent.max_cost": quote.total - 0.01}))
    [quote] = quotes_of(offers(small), config)
    told = " ".join(quote.words())
    assert "The engine is local" in told
    assert "no single GPU of runpod has that much" in told
    with pytest.raises(ComputeError, match="23 GB"):
        quotes_of(offers(small), config.replaced(engine="vllm"))
    assert "The engine" not in " ".join(
        quotes_of(offers(L4), config.replaced(engine="vllm"))[0].words()
    )


def test_a_spot_machine_is_quoted_only_if_it_is_wanted() -> None:
    [plain] = offers(L4)
    spot = replace(plain, hourly=0.1, is_spot=True, on_demand_hourly=0.43)
    assert [quote.offer for quote in chosen([plain, spot])] == [plain]
    [quote] = chosen([plain, spot], **{"rent.spot": True})
    assert quote.total == pytest.approx(quote.hours * 0.1)
    assert quote.limit == pytest.approx(3 * quote.hours * 0.43)
    told = " ".join(quote.words())
    for words in ("$0.10 an hour as a spot machine", "taken away", "$0.43 an hour"):
        assert words in told
    between = quote.hours * 0.2  # affordable, unless the price rises
    with pytest.raises(UsageError, match=r"would cost up to \$.*more than --max-cost"):
        chosen([spot], **{"rent.spot": True, "rent.max_cost": between})
    with pytest.raises(NoCapacityError, match="runpod offers no spot machine"):
        chosen([plain], **{"rent.spot": True})


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_not_quoted(price: float) -> None:
    [good, odd] = offers(L4, RTX)
    [quote] = chosen([good, replace(odd, hourly=price)])
    assert quote.offer == good
    with pytest.raises(ComputeError, match=r"the largest 24 GB"):
        chosen([good, replace(odd, gpu_memory_gb=price)], "Qwen/Qwen3-235B")


def need(model: str, **settings: object) -> Need:
    return need_of(TrainingConfig.create(model=model, **settings))


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("Qwen/Qwen3-4B", 4e9),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.5e9),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 135e6),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56e9),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("meta-llama/Llama-3.1-8b", 8e9),
    ],
)
def test_parameters_by_name_are_said_to_be_so(model: str, parameters: float) -> None:
    found = need(model)
    assert found.parameters == parameters
    assert "by its name" in found.words


@pytest.mark.parametrize("model", ["microsoft/phi-4", "gpt2/large", "a/v2.0-beta"])
def test_a_name_that_tells_nothing_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"How large is .*--model its folder"):
        need(model)


def test_a_folder_is_counted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 2_000_000)
    found = need(str(tmp_path))
    assert found.parameters == 1_000_000
    assert "counted in its folder" in found.words
    assert 1e6 < need("nano").parameters < 2e7


def test_a_model_whose_config_is_here_needs_what_its_engine_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "qwen2",
                "hidden_size": 1536,
                "intermediate_size": 8960,
                "num_hidden_layers": 28,
                "num_attention_heads": 12,
                "num_key_value_heads": 2,
                "vocab_size": 151936,
                "tie_word_embeddings": True,
            }
        )
    )
    found = need(str(tmp_path), lora_rank=16)
    assert found.parameters == 1_543_714_304
    assert found.gb > 2 * 1.543714304
    assert "by its config.json" in found.words
    shorter = need(str(tmp_path), lora_rank=16, max_episode_tokens=1024)
    assert shorter.gb < found.gb
