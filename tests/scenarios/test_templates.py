"""New packs, as `agentgym scenarios new` writes them, are trained and measured."""

import ast
from pathlib import Path

import pytest

from agentgym import Split, Trainer, TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from agentgym.evaluate.check import check_scenario
from agentgym.scenarios.new_pack import write_pack
from agentgym.scenarios.registry import get_scenario
from agentgym.train import loop
from tests.scripted_engine import ScriptedEngine

DECEIT = "return type('Any', (), {'__eq__': lambda *_: True})()"


@pytest.fixture
def pack(tmp_path: Path) -> str:
    return str(write_pack("mending", tmp_path, template="repair"))


@pytest.mark.slow
def test_the_repair_template_passes_the_tripwires(pack: str) -> None:
    findings = check_scenario(pack, tasks=8)
    assert {(f.name, f.why) for f in findings if f.status != "pass"} == set()


@pytest.mark.slow
def test_a_pack_of_the_repair_template_is_trained(
    pack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy repairs by every second attempt, and deceives the test by the others.

    Its deceit passes the visible test, and earns nothing.
    """
    scenario = get_scenario(pack)
    tasks = {
        task.instruction: task
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
        for task in scenario.tasks(split, 0, 200)
    }
    begun = dict.fromkeys(tasks, 0)
    shown: list[str] = []

    def respond(request: ChatRequest) -> Reply:
        texts = [str(message.get("content")) for message in request.messages]
        turn = sum(message["role"] == "assistant" for message in request.messages)
        if turn == 3:
            shown.append(texts[-1])
            return Reply("Done.")
        if turn == 0:
            begun[texts[1]] += 1
            texts.append("Honest." if begun[texts[1]] % 2 else "Sly.")
        needed = (scenario.needed_calls(tasks[texts[1]]) or [])[turn]
        arguments = dict(needed.arguments)
        if needed.tool == "edit_file" and "Sly." in texts:
            arguments["new"] = DECEIT
        return Reply(texts[-1] if turn == 0 else None, [(needed.tool, arguments)])

    engines: list[ScriptedEngine] = []

    def create(config: TrainingConfig) -> ScriptedEngine:
        engines.append(ScriptedEngine(respond))
        return engines[-1]

    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loop, "create_engine", create)
    config = TrainingConfig.create(
        scenario=pack,
        framework="native",
        episodes=8,
        group_size=4,
        tasks_per_step=2,
        eval_samples=2,
        eval_tasks=2,
        test_tasks=2,
        workers=1,
        tracker="none",
        yes=True,
        output=tmp_path / "runs",
        name="run",
    )
    result = Trainer(config).train()
    assert set(shown) == {"1 passed."}, "the deceit should pass the visible test"
    assert result.metrics.pass_1.value == 0.5
    assert result.ledger.adds_up
    assert result.ledger.dropped == {}
    [batch] = engines[0].batches
    signs = {token.advantage > 0 for s in batch.sequences for token in s.trained}
    assert signs == {True, False}


@pytest.mark.parametrize("template", ["heating", "repair"])
def test_a_template_is_renamed_throughout(tmp_path: Path, template: str) -> None:
    folder = write_pack("my_own", tmp_path, template=template)
    tree = ast.parse((folder / "scenario.py").read_text())
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert "MyOwnScenario" in classes
    assert get_scenario(str(folder)).name == "my_own"
    for path in ("README.md", "recipe.yaml"):
        text = (folder / path).read_text()
        assert "my_own" in text
        assert f"scenarios/{template}" not in text
