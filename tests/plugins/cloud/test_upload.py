"""What is sent of a user's folder: what the code needs, and no more."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError
from agentgym.plugins.cloud.install import wheel
from agentgym.plugins.cloud.upload import make_upload
from agentgym.version import __version__

FILES = {
    "app/__init__.py": "",
    "app/agents.py": "import os, orjson, helpers\nX = os.environ['SHOP']",
    "app/prompts/hello.txt": "hello",
    "app/.env": "SHOP=secret",
    "app/key.pem": "secret",
    "app/__pycache__/agents.pyc": "cache",
    "helpers.py": "import json\nFAQ = open('data/faq.json')\nENV = open('.env')",
    "data/faq.json": "{}",
    "data/customers.csv": "private",
    ".env": "SHOP=secret",
    "unrelated.py": "import torch",
    "venv/pyvenv.cfg": "",
    "tasks.jsonl": "{}",
    "tasks.answers.jsonl": "{}",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.slow
def test_an_agent_goes_with_what_it_imports_and_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP", "key-of-the-shop")
    monkeypatch.setenv("OTHER", "not asked for")
    found = make_upload(TrainingConfig(agent="app.agents:graph"))
    assert sorted(found.files) == [
        "app/__init__.py",
        "app/agents.py",
        "app/prompts/hello.txt",
        "data/faq.json",
        "helpers.py",
    ]
    assert [each.partition("==")[0] for each in found.packages] == ["orjson"]
    assert found.variables == {"SHOP": "key-of-the-shop"}
    assert "key-of-the-shop" not in repr(found)
    assert found.extras == ["local", "langchain"]


@pytest.mark.slow
def test_a_tasks_file_goes_with_its_answers_and_tools(folder: Path) -> None:
    reference = f"{folder}/tasks.jsonl?tools=helpers%3ATOOLS&folder={folder}"
    found = make_upload(TrainingConfig(scenario=reference, framework="native"))
    assert {"tasks/tasks.jsonl", "tasks/tasks.answers.jsonl", "helpers.py"} <= set(
        found.files
    )
    there = found.remote_config("/home/me/run", "x")
    assert there.scenario.startswith("/home/me/run/inputs/tasks/tasks.jsonl?")
    assert str(folder) not in there.model_dump_json()
    assert (there.gpu, there.name) == ("auto", "x")
    told = found.with_local_paths(
        "/home/me/run/inputs/tasks/tasks.jsonl is bad", "/home/me/run"
    )
    assert told == f"{folder}/tasks.jsonl is bad"


def test_a_benchmark_goes_with_its_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sent(reference: str) -> tuple[list[str], str]:
        found = make_upload(TrainingConfig(scenario=reference))
        return sorted(found.files), found.remote_config("/r", "x").scenario

    wheel = folder / "bfcl.whl"
    wheel.write_bytes(b"zip")
    named = sent(f"bfcl?data={wheel}&categories=live")
    assert named == (
        ["data/bfcl.whl"],
        "bfcl?data=/r/inputs/data/bfcl.whl&categories=live",
    )
    monkeypatch.setenv("AGENTGYM_HOME", str(folder / "home"))
    assert sent("bfcl") == ([], "bfcl")
    fetched = folder / "home" / "data" / "bfcl_eval-2026.3.23"
    (fetched / "bfcl_eval").mkdir(parents=True)
    (fetched / "bfcl_eval" / "x.json").write_text("{}")
    files, there = sent("bfcl")
    assert files == ["data/bfcl_eval-2026.3.23/bfcl_eval/x.json"]
    assert there == "bfcl?data=/r/inputs/data/bfcl_eval-2026.3.23"


@pytest.mark.slow
def test_a_pack_goes_whole_with_its_requirements(folder: Path) -> None:
    pack = folder / "mine"
    pack.mkdir()
    (pack / "scenario.py").write_text("from .words import W\n")
    (pack / "words.py").write_text("W = 1\n")
    (pack / "requirements.txt").write_text("# needed\nfaker>=30  # names\n-r x\n")
    found = make_upload(TrainingConfig(scenario=str(pack), framework="native"))
    assert set(found.files) == {
        "packs/mine/requirements.txt",
        "packs/mine/scenario.py",
        "packs/mine/words.py",
    }
    assert found.packages == ["faker>=30"]
    assert found.remote_config("/r", "x").scenario == "/r/inputs/packs/mine"


@pytest.mark.slow
def test_what_links_lead_to_goes_and_nothing_hidden(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for name in ("prices.txt", ".hidden/token.txt", "shared/faq.txt", "shared/x.pem"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text(name)
    pack = folder / "mine"
    (pack / "data").mkdir(parents=True)
    (pack / "scenario.py").write_text("X = 1\n")
    (pack / "data" / "real.txt").write_text("real")
    links = {
        "absolute.txt": outside / "prices.txt",
        "a_link": "data",
        "data/loop": "..",
        "data/up": "../..",
        "hidden": outside / ".hidden",
        "token.txt": outside / ".hidden" / "token.txt",
        "env.txt": "../.env",
        "shared": outside / "shared",
        "dangling": "nowhere",
    }
    for name, target in links.items():
        (pack / name).symlink_to(target)
    (outside / "shared" / "back").symlink_to(pack)
    found = make_upload(TrainingConfig(scenario=str(pack), framework="native"))
    assert {name.removeprefix("packs/mine/") for name in found.files} == {
        *("absolute.txt", "data/real.txt", "scenario.py", "shared/faq.txt"),
        "a_link/real.txt",
    }


def test_a_judges_key_goes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-judge")
    found = make_upload(TrainingConfig.create(framework="native", judge="openai:gpt-x"))
    assert found.variables["OPENAI_API_KEY"] == "sk-of-the-judge"
    assert "OPENAI_API_KEY" not in make_upload(TrainingConfig()).variables
    for judge in ("http://localhost:8000/v1#m", "http://a/v1,http://127.0.0.1/v1#m"):
        with pytest.raises(UsageError, match="cannot reach a server at a loopback"):
            make_upload(TrainingConfig.create(framework="native", judge=judge))


@pytest.mark.slow
def test_the_package_goes_as_a_wheel() -> None:
    made = wheel()
    assert made == wheel()
    with zipfile.ZipFile(BytesIO(made)) as archive:
        names = set(archive.namelist())
        about = f"agentgym_sdk-{__version__}.dist-info"
        metadata = archive.read(f"{about}/METADATA").decode()
    assert {"agentgym/plugins/cloud/run_server.py", f"{about}/RECORD"} <= names
    assert any(name.endswith("model.safetensors") for name in names)
    assert not any("__pycache__" in name for name in names)
    assert "Provides-Extra: local" in metadata
