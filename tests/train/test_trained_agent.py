"""An agent's card: what is written is read again, and what is no card is refused."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import huggingface_hub
import pytest

from agentgym import TrainedAgent, Trainer
from agentgym.core.policy import ChatRequest
from agentgym.engines.local import support
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import AgentGymError, CorruptModelError, UsageError
from agentgym.rollout.prompt_overrides import NewText, Wording
from agentgym.train.versions import AGENT_FILE
from tests.train.agents import make_agent


@pytest.fixture
def agent(tmp_path: Path) -> TrainedAgent:
    return make_agent(tmp_path / "made", 0.3, 0.9)


def test_a_card_is_read_as_it_was_written(agent: TrainedAgent) -> None:
    assert TrainedAgent.load(agent.path) == agent


def test_prompts_of_its_training_are_its_own(
    agent: TrainedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    wording = Wording(prompts=(NewText(before="You help.", after="You help kindly."),))
    agent.provenance.config["prompts"] = wording.text
    seen: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        seen.append(request)
        return Reply("Done.")

    scripted = ScriptedPolicy(respond)
    monkeypatch.setattr(support, "load_policy", lambda *_: scripted)
    request = ChatRequest([{"role": "system", "content": "You help."}])

    asyncio.run(agent.load_policy().chat(request))
    del agent.provenance.config["prompts"]
    asyncio.run(agent.load_policy().chat(request))

    told = [each.messages[0]["content"] for each in seen]
    assert told == ["You help kindly.", "You help."]


def test_an_option_that_an_export_does_not_have_is_refused(
    agent: TrainedAgent,
) -> None:
    with pytest.raises(TypeError, match="to_langchain takes no base_ulr"):
        agent.to_langchain(base_ulr="http://127.0.0.1:9/v1")  # type: ignore[call-arg]


@pytest.mark.parametrize("card", ["{", '{"spec": {}}'])
def test_a_card_that_is_none_says_what_to_do(agent: TrainedAgent, card: str) -> None:
    (agent.path / AGENT_FILE).write_text(card)

    with pytest.raises(AgentGymError, match="(?s)cannot be read .* Train or save it"):
        TrainedAgent.load(agent.path)


def test_another_word_for_constrain_is_refused_and_the_agent_not_blamed(
    agent: TrainedAgent,
) -> None:
    found = TrainedAgent.load(agent.path, constrain="none")
    assert found.constrain == "none"
    with pytest.raises(UsageError, match="'foo' is not one of auto, none, calls"):
        TrainedAgent.load(agent.path, constrain="foo")  # type: ignore[arg-type]


WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("damage", ["cut", "altered", "gone"])
def test_weights_that_are_not_as_saved_are_named(
    agent: TrainedAgent, damage: str
) -> None:
    path = agent.model_path / WEIGHTS
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"weight" if damage == "cut" else b"weighty")
    loaded = TrainedAgent.load(agent.path)  # whose card can be looked at all the same
    with pytest.raises(CorruptModelError, match=f"{path} (is not as|cannot be read)"):
        loaded.load_policy()
    with pytest.raises(CorruptModelError, match=WEIGHTS):
        Trainer().evaluate("coding", agent=loaded)
    with pytest.raises(CorruptModelError, match=WEIGHTS):
        loaded.export(agent.path.with_name("out"))
    with pytest.raises(CorruptModelError, match=WEIGHTS):
        Trainer().deploy(loaded)


def test_saved_versions_have_their_checksums(agent: TrainedAgent) -> None:
    saved = TrainedAgent.load(agent.save("made"))
    assert set(saved.checksums) == {"config.json", WEIGHTS}
    assert saved.verified_model() == saved.model_path


def test_an_agent_without_checksums_is_not_loaded(agent: TrainedAgent) -> None:
    card = json.loads((agent.path / AGENT_FILE).read_text())
    del card["checksums"]
    (agent.path / AGENT_FILE).write_text(json.dumps(card))
    with pytest.raises(CorruptModelError, match="has no checksums"):
        TrainedAgent.load(agent.path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "sub/a.PTH"])
def test_pickles_are_refused(agent: TrainedAgent, name: str) -> None:
    path = agent.model_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(CorruptModelError, match=f"{path} is a pickle"):
        TrainedAgent.load(agent.path)


@pytest.mark.parametrize(
    "name", ["model/notes.txt", "model/tokenizer.json", "more", "model", "agent.json"]
)
def test_links_to_files_of_others_are_refused(
    agent: TrainedAgent, tmp_path: Path, name: str
) -> None:
    """To export or save the agent would copy them."""
    outside = tmp_path / "outside"
    shutil.copytree(agent.path, outside)
    place = agent.path / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    named = {"more": ".", "model/notes.txt": "agent.json"}.get(name, name)
    place.symlink_to(outside / named)
    with pytest.raises(CorruptModelError, match=f"{place} is a link to {outside}"):
        TrainedAgent.load(agent.path).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_within_an_agent_and_to_known_weights_are_followed(
    agent: TrainedAgent, tmp_path: Path
) -> None:
    weights = agent.model_path / WEIGHTS
    weights.rename(tmp_path / "big-disk")
    weights.symlink_to(tmp_path / "big-disk")
    (agent.model_path / "again").symlink_to("config.json")
    (agent.path / "agent.md").symlink_to("agent.json")
    loaded = TrainedAgent.load(agent.path)
    loaded.verified_model()
    weights.unlink()
    weights.symlink_to("/etc/passwd")
    with pytest.raises(CorruptModelError, match="not as it was saved"):
        TrainedAgent.load(agent.path).export(tmp_path / "out", "hf")


@pytest.mark.parametrize("name", ["../../secret", "{}/secret", "", ".", "sub", "fifo"])
def test_checksums_of_other_files_are_refused(
    agent: TrainedAgent, tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret").write_text("")
    (agent.model_path / "sub").mkdir()
    os.mkfifo(agent.model_path / "fifo")
    agent.checksums = {**agent.checksums, name.format(tmp_path): "0" * 64}
    with pytest.raises(CorruptModelError, match="is not a file of its model"):
        agent.export(tmp_path / "out", "hf")


def test_an_agent_is_downloaded_by_its_id(
    agent: TrainedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "hub" / "models--someone--my-agent" / "snapshots" / "0f"
    asked = []

    def download(repository: str, *, allow_patterns: list[str]) -> str:
        asked.append((repository, allow_patterns))
        place.parent.mkdir(parents=True, exist_ok=True)
        agent.path.rename(place)
        return str(place)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    loaded = TrainedAgent.load("someone/my-agent")
    assert asked == [("someone/my-agent", ["agent.json", "model/*"])]
    assert (loaded.name, loaded.spec) == ("someone/my-agent", agent.spec)
    assert loaded.verified_model() == place / "model"


def test_without_a_network_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ConnectionError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UsageError, match=r"downloaded \(ConnectionError: no network"):
        TrainedAgent.load("someone/my-agent")


def test_a_folder_without_an_agent_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: 1 / 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    with pytest.raises(UsageError, match="No trained agent is named 'runs/one'"):
        TrainedAgent.load("runs/one")
