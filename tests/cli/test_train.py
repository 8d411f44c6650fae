"""``agentgym train``: options in, output out."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from huggingface_hub import constants

from agentgym import TrainingConfig
from agentgym.errors import ModelError
from agentgym.evaluate import events
from agentgym.install import install_command
from agentgym.models.nano import nano_path
from agentgym.train import loop, trainer
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from tests.cli.conftest import Command
from tests.ui import made_up


class FakeTrainer:
    """Takes what Trainer takes and reports what Trainer reports, at once."""

    calls: ClassVar[list[tuple[TrainingConfig | None, dict[str, Any]]]]

    def __init__(
        self,
        config: TrainingConfig | None = None,
        *,
        progress: events.Observer = events.silent,
        began: float | None = None,
    ) -> None:
        self.config = config
        self.progress = progress

    def plan(self) -> events.Plan:
        return made_up.plan()

    def train(self, scenario: str | None = None, **given: Any) -> TrainingResult:
        self.calls.append((self.config, given))
        self.progress(made_up.plan())
        self.progress(events.PhaseStarted("before", 2))
        self.progress(events.RolloutDone())
        self.progress(events.BaselineMeasured(made_up.metrics(0.52)))
        self.progress(made_up.step(1))
        self.progress(events.Validated(1, made_up.metrics(0.96), True))
        self.progress(events.Ended("success criteria reached", made_up.ledger()))
        run = Path("runs/demo")
        run.mkdir(parents=True)
        return made_up.result(run)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeTrainer]:
    """Put a fake in Trainer's place and return it."""

    class Fake(FakeTrainer):
        calls: ClassVar[list[tuple[TrainingConfig | None, dict[str, Any]]]] = []

    monkeypatch.setattr(trainer, "Trainer", Fake)
    return Fake


def test_shows_everything_a_newcomer_needs(
    agentgym: Command, fake: type[FakeTrainer]
) -> None:
    ended = agentgym("train", "coding", "--framework", "langchain")
    assert ended.code == 0
    for part in (
        "480 held-out rollouts before and after",
        "Baseline",
        "52 % [48, 56]",
        "step 1 ",
        "goal reached",
        "Before and after",
        "+45 points",
        "Out of vocabulary",
        "9,000 trained, 800 masked, 200 dropped",
        "Saved as coding@1, now the default: it is the first version.",
        "from agentgym import TrainedAgent\n",
        'agent = TrainedAgent.load("coding@1").to_langchain()\n',
    ):
        assert part in ended.out
    assert "\x1b" not in ended.out


def test_json_alone_is_on_standard_output(
    agentgym: Command, fake: type[FakeTrainer]
) -> None:
    ended = agentgym("train", "coding", "--json")
    assert json.loads(ended.out)["metrics"]["pass_1"]["value"] == 0.97
    assert "Baseline" in ended.err


def test_options_become_settings(agentgym: Command, fake: type[FakeTrainer]) -> None:
    words = "train coding --framework native --episodes 64 --seed 3 deterministic=true"
    words += " --set algorithm=grpo tracker=none --name x --gpu none --output elsewhere"
    words += " --agent my.module:make --model models/mine --unsafe-local-exec"
    assert agentgym(*words.split()).code == 0
    config = fake.calls[0][0]
    assert config is not None
    expected = TrainingConfig.create(
        scenario="coding",
        framework="native",
        episodes=64,
        seed=3,
        deterministic=True,
        algorithm="grpo",
        tracker="none",
        name="x",
        gpu="none",
        output=Path("elsewhere"),
        agent="my.module:make",
        model="models/mine",
        unsafe_local_exec=True,
    )
    assert config == expected


def test_options_win_over_the_file(agentgym: Command, fake: type[FakeTrainer]) -> None:
    Path("run.yaml").write_text("scenario: coding\nepisodes: 300\nseed: 5\n")
    agentgym("train", "--config", "run.yaml", "--episodes", "64")
    config = fake.calls[0][0]
    assert config is not None
    assert (config.episodes, config.seed) == (64, 5)


def test_dry_run_starts_nothing(agentgym: Command, fake: type[FakeTrainer]) -> None:
    ended = agentgym("train", "coding", "--dry-run")
    assert ended.code == 0
    assert "Nothing was started" in ended.out
    assert fake.calls == []
    plan = json.loads(agentgym("train", "coding", "--dry-run", "--json").out)
    assert plan["steps"] == 16


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("--episodes 99", {"episodes": 99}),
        ("--warm-start", {"warm_start": True}),
        (
            "vllm.max_model_len=4096 vllm.max_num_seqs=null",
            {"vllm.max_model_len": 4096, "vllm.max_num_seqs": None},
        ),
    ],
)
def test_a_resumed_run_takes_what_may_change(
    agentgym: Command, fake: type[FakeTrainer], words: str, changes: dict[str, Any]
) -> None:
    assert agentgym("train", "--resume", "runs/x", *words.split()).code == 0
    assert fake.calls[0][1] == {"resume": "runs/x", **changes}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--config", "run.yaml"], "leave --config"),
        (["--dry-run"], "leave --config"),
        (["--seed", "3"], "leave out: seed"),
    ],
    ids=str,
)
def test_resume_keeps_the_settings_of_the_run(
    agentgym: Command, fake: type[FakeTrainer], words: list[str], part: str
) -> None:
    ended = agentgym("train", "--resume", "runs/x", *words)
    assert ended.code == 2
    assert part in ended.err
    assert fake.calls == []


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ([], 2, "Available: coding"),
        (["codign"], 2, "Did you mean 'coding'?"),
        (["coding", "--framework", "langchian"], 2, "Did you mean 'langchain'?"),
        (["coding", "--episodes", "0"], 2, "episodes = 0"),
        (["coding", "--name", "a/b"], 2, "a name has letters"),
        (["coding", "--output", 300 * "o"], 2, "is longer than a file's may be"),
        (["coding", "--model", "./file"], 2, "./file is a file, not a model"),
        (["coding", "--engine", "verl"], 2, "agentgym engine install verl"),
        (["coding", "algorithm=ppo"], 2, "algorithm = 'ppo' with engine = 'local'"),
        (["--resume", "absent"], 2, "No run is named 'absent'"),
        (["coding", "--output", "file"], 1, "Cannot write the run folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_bad_input_is_one_paragraph(
    agentgym: Command, words: list[str], code: int, part: str
) -> None:
    Path("file").write_text("")
    ended = agentgym("train", *words)
    assert (ended.code, ended.out) == (code, "")
    assert part in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize("verb", ["train", "eval"])
@pytest.mark.parametrize(
    ("damage", "part"),
    [
        ("cut", "are damaged: the file has 100,000 bytes and not the"),
        ("no tokenizer", "holds no tokenizer (tokenizer.json)"),
    ],
)
def test_a_model_that_is_not_whole_is_refused_before_it_is_loaded(
    agentgym: Command, verb: str, damage: str, part: str
) -> None:
    shutil.copytree(nano_path(), "m")
    if damage == "cut":
        os.truncate("m/model.safetensors", 100_000)
    else:
        Path("m/tokenizer.json").unlink()
    ended = agentgym(verb, "coding", "--model", "m")
    assert ended.code == 2
    assert part in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_model_that_cannot_be_loaded_leaves_no_new_run_and_an_old_one_stays(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(config: TrainingConfig) -> None:
        raise ModelError("The model 'nano' cannot be loaded.")

    monkeypatch.setattr(loop, "create_engine", refuse)
    ended = agentgym("train", "coding", "--name", "x")
    assert ended.code == 2
    assert "The model 'nano' cannot be loaded." in ended.err
    assert not Path("runs/x").exists()
    run = RunFolder.create(TrainingConfig.create(name="begun"))
    assert agentgym("train", "--resume", "begun").code == 2
    assert run.config().name == "begun"


def test_a_folder_that_cannot_be_written_is_found_before_the_trial(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = "agentgym.train.plan.probed"
    monkeypatch.setattr(probed, lambda config: pytest.fail("a trial ran"))
    Path("file").write_text("")
    Path("mine.py").write_text("def make(llm, tools):\n    return None\n")
    given = ["--agent", "mine:make", "--output", "file"]
    for dry in ([], ["--dry-run"]):
        ended = agentgym("train", "coding", *given, *dry)
        assert "Cannot write the run folder file/" in ended.err


@pytest.mark.parametrize("home", ["file/home", "/proc/home"])
def test_home_that_cannot_be_written_is_found_before_training(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    Path("file").write_text("")
    monkeypatch.setenv("AGENTGYM_HOME", home)
    ended = agentgym("train", "coding", "--dry-run")
    assert ended.code == 2
    assert f"{home} is not writable" in ended.err
    assert not Path("runs").exists()


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry run"])
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--agent", "nosuch:thing"], "No module named 'nosuch'"),
        (["--agent", "mine:thing"], "Module 'mine' has no 'thing'"),
        (["--agent", "broken:make"], "broken.py, line 1: ZeroDivisionError"),
        (["--model", "gpt-4.1-mini"], "write openai:gpt-4.1-mini"),
        (["--agent", "mine:make", "--framework", "native"], "needs a framework"),
        (["--set", "tracker=wandb"], install_command("wandb")),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else None,
)
def test_what_cannot_run_is_refused_before_anything_is_loaded(
    agentgym: Command,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    part: str,
    dry: list[str],
) -> None:
    def load(config: TrainingConfig) -> None:
        pytest.fail("a model is loaded")

    monkeypatch.setattr(loop, "create_engine", load)
    for module in ("wandb", "tensorboard"):  # as if neither was installed
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine.py").write_text("def make(llm, tools): ...\n")
    Path("broken.py").write_text("1 / 0\n")
    tracker = [] if "--set" in words else ["--set", "tracker=none"]
    ended = agentgym("train", "coding", *words, *tracker, *dry)
    assert ended.code == 2
    assert part in ended.err
    is_imported = ":" in words[1]  # which may take long, so that it is announced
    assert ended.out.startswith(f"Importing {words[1]}, and trying") == is_imported
    assert ended.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_model_that_cannot_be_had_is_one_sentence_at_the_plan(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    words = ["train", "coding", "--framework", "native", "--gpu", "none"]
    for more in ([], ["--dry-run"]):
        ended = agentgym(*words, "--model", "Nobody/no-such-model-0.5B", *more)
        assert ended.code == 2
        said = ended.err.strip().splitlines()[-1]
        assert "The model 'Nobody/no-such-model-0.5B' is not on this machine" in said
        assert "the request to Hugging Face failed" in said
        assert "Give --model a folder" in said
    assert not list(Path("runs").glob("*"))
