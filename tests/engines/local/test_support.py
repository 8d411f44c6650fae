"""Contract 6: what the engine does not support is refused before a model loads."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.local import loading
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.support import LocalEngines
from agentgym.errors import ModelError, UnsupportedError
from agentgym.models.folder import new_rank


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig.create(**{"gpu": "none", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpu": "runpod"}, "gpu = 'runpod'"),
        ({"gpu": "lambda"}, "gpu = 'lambda'"),
        ({"lora_rank": 8}, "lora_rank = 8 with model = 'nano'"),
        ({"gpu": "local", "deterministic": True}, "deterministic = true with gpu"),
    ],
)
def test_contract_6_unsupported_settings_are_refused_before_a_model_loads(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_model(*args: object, **kwargs: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(loading, "find_class", no_model)
    for refuse in (LocalEngines().check, LocalEngines().create):
        with pytest.raises(UnsupportedError, match=message):
            refuse(config(**settings))


@pytest.mark.slow
def test_the_check_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from agentgym.core.config import TrainingConfig\n"
        "from agentgym.engines.local.support import LocalEngines\n"
        "LocalEngines().check(TrainingConfig.create(gpu='none'))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_policy_and_device_are_described(model_folder: Path) -> None:
    found = LocalEngines().check(config(model=str(model_folder)))
    model, device = found.model, found.device

    assert (found.form, found.path, found.drops_reasoning) == ("hermes", "", False)

    assert model.startswith(str(model_folder))
    assert "k parameters, LoRA rank 16)" in model
    assert device.startswith("CPU (")


def test_an_adapter_is_trained_with_its_own_rank(
    model_folder: Path, tmp_path: Path
) -> None:
    loaded = load_model(str(model_folder), device="cpu", rank=4, seed=0)
    assert loaded.adapter is not None
    loaded.adapter.save_pretrained(str(tmp_path))
    loaded.tokenizer.save_pretrained(tmp_path)
    model = str(tmp_path)

    for rank in (None, 4, 0):  # 0 is how a trained agent is measured
        described = LocalEngines().check(config(model=model, lora_rank=rank)).model
        assert described == f"{model} (LoRA rank 4)"
    for refuse in (LocalEngines().check, LocalEngines().create):
        with pytest.raises(UnsupportedError, match="lora_rank = 64 .* of rank 4,"):
            refuse(config(model=model, lora_rank=64))


def test_nano_trains_all_weights_and_others_an_adapter() -> None:
    assert new_rank("nano", None) == 0
    assert new_rank("Qwen/Qwen3-0.6B", None) == 16
    assert new_rank("Qwen/Qwen3-0.6B", 0) == 0


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing"):
        LocalEngines().check(config(model=str(tmp_path)))
    with pytest.raises(ModelError, match="does not exist"):
        LocalEngines().check(config(model=str(tmp_path / "gone")))


TEMPLATE, WEIGHTS = "chat_template.jinja", "model.safetensors"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("adapter_config.json", "{}", "cannot be read as LoRA's"),
        (WEIGHTS, "cut short", "cannot be read"),
        (TEMPLATE, None, "no chat template"),
        (
            TEMPLATE,
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            "does not show the model",
        ),
        (
            TEMPLATE,
            "{{ tools | tojson }}{% for m in messages %}{{ m | tojson }}{% endfor %}",
            "are of no known form: .*probe_tool",
        ),
        (TEMPLATE, "{{ raise_exception('no system role') }}", "no system role"),
    ],
)
def test_a_folder_that_cannot_be_trained_is_refused_before_anything_is_loaded(
    model_folder: Path, tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    folder = tmp_path / "odd"
    shutil.copytree(model_folder, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)

    with pytest.raises(ModelError, match=message):
        LocalEngines().check(config(model=str(folder)))
    said = message if name == TEMPLATE else "cannot be loaded"
    with pytest.raises(ModelError, match=said):
        load_model(str(folder), device="cpu", rank=0, seed=0)


def test_an_id_that_cannot_be_reached_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*args: object, **kwargs: object) -> None:
        raise OSError("We couldn't connect to the hub.")

    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", offline)
    with pytest.raises(ModelError, match=r"(?s)couldn't connect.*--model nano"):
        load_model("someone/some-model", device="cpu", rank=0, seed=0)
