"""A real vLLM on the CPU: training, serving and forms of answers, with one server.

Where no vLLM for CPUs is installed (``agentgym engine install vllm --cpu``), these are
skipped. What a server does wrong is played by ``fake_vllm.py``.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split
from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.environments import installed_version
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import PolicyLoss
from agentgym.engines.settings import base_source
from agentgym.plugins.vllm.engine import VllmPolicy
from agentgym.plugins.vllm.environment import require_command
from agentgym.plugins.vllm.server import VllmServer
from agentgym.plugins.vllm.settings import BASE, command_line
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of
from agentgym.train.batch import merged
from agentgym.train.result import TrainingResult
from agentgym.train.trained_agent import TrainedAgent
from tests.cli.conftest import Command, agentgym
from tests.core.formats.test_detect import CALLS, HEAD, TAIL
from tests.engines.local.test_grammar import FORM, LOOK, ROUTE, asked, call_of
from tests.plugins.vllm.conftest import ROOT, config, make_environment
from tests.plugins.vllm.test_engine import ask
from tests.real_models import VLLM_FOLDER, VLLM_ON_CPU

__all__ = ["agentgym"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), VLLM_ON_CPU]

GAP = 1e-4
"""Most nats, in the mean, between log-probabilities of vLLM and the learner.

Both compute in float32; in bfloat16 they were 0.0005 apart. 0.1 ends a run.
"""
SERVES = Path(__file__).with_name("shared_vllm.py")
PARSER = "--enable-auto-tool-choice --tool-call-parser hermes"
"""For clients of its chat completions; runs ask for tokens, which it does not read."""


def environment(home: Path, command: str) -> None:
    """Make an environment below AGENTGYM_HOME with a command of the real version."""
    assert VLLM_FOLDER is not None
    version = installed_version(VLLM_FOLDER / "bin" / "python", "vllm")
    assert version is not None
    place = make_environment(home, version)
    (place / "bin" / "vllm").write_text(f"#!/bin/sh\n{command}\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """Yield a vLLM with the shipped policy, started as a run starts it."""
    home = tmp_path_factory.mktemp("server")
    environment(home, f'exec {VLLM_FOLDER}/bin/vllm "$@" {PARSER}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(home))
        settings = small(home)
        made = VllmServer.start(settings)
        words = command_line(settings, str(require_command()), 0)
    told = {"address": made.address, "key": made.key, "model": BASE}
    told["words"] = words[1:-1]  # without the command and the port
    (home / "shared.json").write_text(json.dumps(told))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARED_VLLM", str(home / "shared.json"))
        yield made
    made.close()


@pytest.fixture(scope="module")
def trained(
    server: VllmServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainingResult, list[dict[str, Any]]]:
    """Return a run of two steps, and the requests that vLLM had from it."""
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(home))
        patch.setenv("SHARED_VLLM_SEEN", str(home / "seen.jsonl"))
        shared(home)
        settings = small(home)
        plan = Trainer(settings).plan()
        assert plan.device.startswith("CPU (")
        assert plan.device.endswith("), shared with vLLM")
        result = Trainer(settings).train()
    assert result.device == plan.device
    lines = (home / "seen.jsonl").read_text().splitlines()
    return result, [json.loads(line) for line in lines]


def shared(home: Path) -> None:
    """Make an environment whose command shares the server."""
    environment(home, f'PYTHONPATH={ROOT} exec {sys.executable} {SERVES} "$@"')


def small(output: Path, **changes: Any) -> TrainingConfig:
    """Return the settings of a run of two steps."""
    return config(output, name="run", gpu="none", learning_rate=0.002, **changes)


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def finished(run: Path) -> int:
    """Return the steps of a run's newest checkpoint."""
    names = [path.name for path in run.glob("checkpoints/step-*")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def adapter(server: VllmServer, folder: Path, name: str) -> str:
    """Have vLLM load an adapter; return its name there."""
    given = {"lora_name": name, "lora_path": str(folder), "load_inplace": True}
    server.ask("POST", "/v1/load_lora_adapter", json=given)
    return name


def test_two_steps_are_sampled_with_the_weights_that_were_learned(
    trained: tuple[TrainingResult, list[dict[str, Any]]],
    record_property: Callable[[str, object], None],
) -> None:
    result, seen = trained
    steps = metrics(result.artifacts.run)
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["trained_tokens"] > 0 for step in steps)
    assert all(0 < step["logprob_gap"] < GAP for step in steps)
    names = [f"{BASE}-v{step}" for step in range(3)]
    loaded = [x["name"] for x in seen if x["path"] == "/v1/load_lora_adapter"]
    assert [name for name in loaded if name in names] == names
    asked = {x["name"] for x in seen if x["path"] == "/v1/completions"}
    assert asked >= set(names), "each version answered"
    version = installed_version(Path(str(VLLM_FOLDER), "bin", "python"), "vllm")
    gaps = " and ".join(f"{step['logprob_gap']:.1e}" for step in steps)
    record_property("measured", f"vLLM {version}: log-prob gaps of {gaps} nats")


def test_tokens_are_those_of_serve_and_of_transformers(
    server: VllmServer, trained: tuple[TrainingResult, Any]
) -> None:
    folder = trained[0].artifacts.agent
    name = adapter(server, folder / "model", "same")
    scenario = get_scenario("coding")
    tasks = make_tasks(scenario, Split.TEST, 0, 10)
    assert len(tasks) == 10
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    base = AutoModelForCausalLM.from_pretrained(base_source("nano"))
    model = PeftModel.from_pretrained(base, folder / "model").eval()
    ours = Trainer().deploy(TrainedAgent.load(folder), api_key=server.key)
    with ours, httpx.Client(timeout=120, trust_env=False) as client:
        for task in tasks:
            tools = [tool.to_openai() for tool in tools_of(scenario, task)]
            body = {
                "messages": [{"role": "user", "content": task.instruction}],
                "tools": tools,
                "temperature": 0.0,
                "max_tokens": 60,
                "return_token_ids": True,
            }
            answers = []
            for url, asked_for in (
                (ours.url, ours.models[0]),
                (f"{server.address}/v1", name),
            ):
                answer = client.post(
                    f"{url}/chat/completions",
                    json={**body, "model": asked_for},
                    headers={"Authorization": f"Bearer {server.key}"},
                )
                assert answer.status_code == 200, answer.text
                data = answer.json()
                (choice,) = data["choices"]
                called = choice["message"].get("tool_calls") or ()
                calls = [
                    (each["name"], json.loads(each["arguments"]))
                    for each in (call["function"] for call in called)
                ]
                answers.append((data["prompt_token_ids"], choice["token_ids"], calls))
            assert answers[0] == answers[1]
            prompt = tokenizer.apply_chat_template(
                body["messages"],
                tools=tools,
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
            with torch.no_grad():
                made = model.generate(**prompt, do_sample=False, max_new_tokens=60)
            size = prompt["input_ids"].shape[1]
            assert answers[1][:2] == (made[0, :size].tolist(), made[0, size:].tolist())


def test_eval_and_rollout_take_it_by_its_address(
    server: VllmServer,
    trained: tuple[TrainingResult, Any],
    agentgym: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = adapter(server, trained[0].artifacts.agent / "model", "measured")
    monkeypatch.setenv("AGENTGYM_API_KEY", server.key)
    model = f"{server.address}/v1#{name}"
    small = ["--tasks", "4", "--samples", "1", "--no-baselines", "--temperature", "0"]
    remote, local = (
        agentgym("eval", "coding", *which, *small, "--json")
        for which in (
            ["--model", model],
            ["--model", str(trained[0].artifacts.agent / "model")],
        )
    )
    assert (remote.code, local.code) == (0, 0), remote.err + local.err
    found = [json.loads(each.out)["metrics"] for each in (remote, local)]
    for key in ("right_tool", "right_arguments", "tool_reliability", "pass_1"):
        assert found[0][key] == found[1][key], key
    words = ["--count", "4", "--temperature", "0", "--save", "out.jsonl"]
    ended = agentgym("rollout", "coding", "--model", model, *words)
    assert ended.code == 0, ended.err
    saved = [json.loads(x) for x in Path("out.jsonl").read_text().splitlines()]
    rollouts = [each for each in saved if "rollout_id" in each]
    assert len(rollouts) == 4
    assert all(each["reward"] is not None for each in rollouts)
    assert any(each["success"] for each in rollouts)


def test_a_langchain_agent_is_answered_by_it(
    server: VllmServer, trained: tuple[TrainingResult, Any]
) -> None:
    agent = TrainedAgent.load(trained[0].artifacts.agent)
    adapter(server, agent.model_path, agent.spec.served_name)
    told = {"messages": [("user", "List the files, please.")]}
    asked: list[str] = []

    def list_files() -> str:
        """List the files."""
        asked.append("list_files")
        return "app.py"

    graph = agent.to_langchain(
        tools=[list_files], base_url=f"{server.address}/v1", api_key=server.key
    )
    answer = graph.invoke(told)["messages"][-1]
    assert asked
    assert answer.text
    assert answer.response_metadata["model_name"] == agent.spec.served_name


def test_a_killed_run_goes_on_without_losing_a_step(
    server: VllmServer, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(own_home)
    monkeypatch.setenv("SHARED_VLLM_SEEN", str(tmp_path / "seen.jsonl"))
    settings = small(tmp_path, episodes=32)
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(settings.model_dump(mode="json", exclude_defaults=True)))
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "agentgym", "train", "--config", str(file)],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 300
        while not finished(run):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = finished(run)
    assert 1 <= done < 4
    before = metrics(run)[:done]
    result = Trainer(settings).train(resume=run)
    after = metrics(run)
    assert [step["step"] for step in after] == [1, 2, 3, 4]
    assert after[:done] == before
    assert all(step["logprob_gap"] < GAP for step in after)
    assert any(step["trained_tokens"] for step in after[done:])
    assert result.steps == 4


@pytest.mark.parametrize(
    ("form", "changes"),
    [
        ("hermes", FORM),
        ("hermes", {}),
        *((form, {"one_call": True}) for form in ("xml", "mistral", "pythonic")),
    ],
    ids=["a schema", "hermes", "xml", "mistral", "pythonic"],
)
def test_answers_in_a_form_are_learned_from_their_own_distribution(
    server: VllmServer, form: str, changes: dict[str, Any]
) -> None:
    """The shipped policy knows hermes alone: in others the grammar makes the calls."""
    template = TemplateSettings(constrain="calls")
    if form != "hermes":
        text = HEAD + CALLS[form] + TAIL
        template = TemplateSettings(constrain="calls", chat_template=text)
    loaded = load_model("nano", device="cpu", rank=0, seed=0, template=template)
    tokens = loaded.chat_tokens()
    policy = VllmPolicy(tokens, server)
    loss = PolicyLoss(loaded, (0.2, 0.2), 0.0, temperature=0.8)
    whole, gap, count = 0, 0.0, 0
    for seed in range(4):
        request = asked(seed, max_tokens=300, **changes)
        result = ask(policy, request)
        if result.finish_reason != "length":
            whole += 1
            for made in result.tool_calls:
                schema = ROUTE if made.name == "Route" else LOOK
                jsonschema.validate(json.loads(made.arguments), schema)
        call = call_of(request, result)
        allowed = tokens.allowed(call)
        assert allowed is not None, "vLLM's tokens are those that the grammar allows"
        places = {at: one for at, one in enumerate(allowed) if one.count > 1}
        [forest] = loss.plant(merged([(call, places, 1.0)], 0))
        sums = loss.total(forest)
        gap, count = gap + sums.gap, count + sums.tokens
    assert whole
    assert 0 < gap / count < GAP
