"""Every benchmark script runs at its smallest size and prints its table."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
QUICK = {
    "code_verdicts.py": "--solutions 8 --endless 0",
    "engine.py": "--episodes 4 --in-flight 4",
    "gateway.py": "--seconds 0.2 --clients 1",
    "gpu_recipes.py": "",
    "rollouts.py": "--rollouts 4 --theirs 1",
    "stopping.py": "--runs 2 --processes 1",
}
"""Scripts that are run each time, with their options."""
LONG = {
    "authored.py": "--rollouts 2 --rounds 1 --kinds langchain",
    "contract_replay.py": "--tasks 12 --runs 1",
    "constrained.py": "--tasks 2 --samples 1 --scenarios coding",
    "faults.py": "--episodes 64 --tasks 2 --samples 1",
    "first_table.py": "--episodes 8",
    "gateway_soak.py": "--minutes 1 --theirs 0 --clients 2",
    "gpu.py": "--gpu none --architectures tiny --episodes 4 --engines local",
    "judged_calls.py": "--model nano --scenario coding --sizes 2x2 --steps 1",
    "log_probabilities.py": "--vocabulary 64 --width 8 --positions 4 --runs 1",
    "matrix_products.py": "",
    "paths.py": "--episodes 4 --in-flight 4",
    "precision.py": "--model src/agentgym/models/nano --rows 2 --tokens 4",
    "profile_job.py": "--episodes 8",
    "programs.py": "--episodes 2",
    "sandbox_languages.py": "--runs 1",
    "sandbox_latency.py": "--runs 1",
    "shared_cores.py": "--model nano --tokens 4 --rounds 1 --processes 1",
    "solve.py": "--rounds 1",
    "startup.py": "--runs 1",
    "threads.py": "--rounds 2",
    "training.py": "--steps 1 --warm-up 1 --trl-steps 0 --tasks 2",
    "turns.py": "--conversations 1 --turns 2 --rounds 1",
    "viewer.py": "--rollouts 100 --rounds 1 --live-seconds 1",
}
"""Scripts that a sweep runs."""
LIBRARIES = {
    "app_requests.py",
    "authored_autogen.py",
    "authored_crewai.py",
    "authored_langchain.py",
    "instant_model.py",
    "langchain_episode.py",
    "machine.py",
    "random_qwen.py",
}
"""Imported or started by the scripts above."""
CHAINED = {
    "arms.py",
    "algorithms.py",
    "bfcl_verdicts.py",
    "learning.py",
    "overhead.py",
    "real_models.py",
    "trl_grpo.py",
    "verl_on_cpu.py",
}
"""Scripts with a test of their own below."""
SMALL = {
    "AGENTGYM_TEST_TASKS": "4",
    "AGENTGYM_EVAL_TASKS": "4",
    "AGENTGYM_EVAL_SAMPLES": "1",
}


def table(name: str, *words: str, home: Path) -> str:
    """Run a script from the root, as its docstring says, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, f"benchmarks/{name}", *words],
        cwd=FOLDER.parent,
        env={**os.environ, **SMALL, "AGENTGYM_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def figures(printed: str) -> int:
    """Count the lines that have a figure."""
    return sum(any(map(str.isdigit, line)) for line in printed.splitlines())


def test_every_script_has_a_smoke_test() -> None:
    scripts = {path.name for path in FOLDER.glob("*.py")}
    assert scripts == {*QUICK, *LONG, *LIBRARIES, *CHAINED}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUICK)
def test_quick_script_prints_figures(name: str, tmp_path: Path) -> None:
    assert figures(table(name, *QUICK[name].split(), home=tmp_path)) > 1


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_what_open_pages_cost_a_training(tmp_path: Path) -> None:
    words = ["--rollouts", "--train-rounds", "1", "--train-episodes", "8"]
    printed = table("viewer.py", *words, home=tmp_path)
    assert figures(printed) > 4
    assert "bytes a rollout" in printed


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_learning_curves_and_the_overhead_of_their_run(tmp_path: Path) -> None:
    words = ["--seeds", "1", "--output", str(tmp_path / "runs")]
    words += ["--", "--episodes", "192", "--yes"]
    printed = table("learning.py", *words, home=tmp_path)
    assert "| held-out | pass^1 |" in printed
    run = str(tmp_path / "runs" / "seed-0")
    assert "| seed-0 |" in table("overhead.py", run, home=tmp_path)


@pytest.mark.sweep
@pytest.mark.timeout(300)
def test_algorithms_are_trained_one_after_the_other(tmp_path: Path) -> None:
    words = ["--episodes", "16", "--output", str(tmp_path / "runs")]
    words += ["--algorithms", "dapo", "rloo+kl", "--rest", "tasks_per_step=1"]
    printed = table("algorithms.py", *words, home=tmp_path)
    assert "| dapo |" in printed
    assert "| rloo+kl |" in printed


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_an_app_is_trained_in_its_time_and_drawn(tmp_path: Path) -> None:
    words = ["--model", "nano", "--only", "app", "speed", "--minutes", "3"]
    words += ["--episodes", "8"]
    words += ["--curves", str(tmp_path / "curves")]
    words += ["warm_start=true", "warm_start_tasks=8", "episodes=8"]
    words += ["tasks_per_step=2", "group_size=4"]
    printed = table("real_models.py", *words, home=tmp_path)
    assert "| app | 3 |" in printed
    assert "| sampling, beside `generate` |" in printed
    assert "<circle" in (tmp_path / "curves" / "app.svg").read_text()


@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_arms_are_drawn_as_well(tmp_path: Path) -> None:
    words = ["--minutes", "0.6", "--tasks", "4", "--arms", "warm", "random"]
    words += ["--picture", str(tmp_path / "arms.svg"), "--rest", "warm_start_tasks=24"]
    sizes = ["tasks_per_step=2", "group_size=4"]
    assert figures(table("arms.py", *words, *sizes, home=tmp_path)) > 2
    assert "<circle" in (tmp_path / "arms.svg").read_text()


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LONG)
def test_long_script_prints_figures(name: str, tmp_path: Path) -> None:
    assert figures(table(name, *LONG[name].split(), home=tmp_path)) > 1


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed")
def test_trl_runs_beside(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    table("trl_grpo.py", "--tasks", "1", str(figures), home=tmp_path)
    assert figures.exists()


@pytest.mark.sweep
@pytest.mark.timeout(600)
@pytest.mark.skipif("VERL_ENVIRONMENT" not in os.environ, reason="needs verl")
def test_verl_runs_beside(tmp_path: Path) -> None:
    table("verl_on_cpu.py", "--steps", "2", str(tmp_path), home=tmp_path)
    assert (tmp_path / "verl" / "metrics.jsonl").exists()


@pytest.mark.network
@pytest.mark.sweep
@pytest.mark.timeout(600)
def test_verdicts_of_saved_rollouts_are_the_packages_own(tmp_path: Path) -> None:
    env = {**os.environ, "AGENTGYM_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "agentgym"]
    subprocess.run([*command, "scenarios", "fetch", "bfcl"], env=env, check=True)
    saved = str(tmp_path / "rollouts.jsonl")
    words = ["rollout", "bfcl", "--model", "nano", "--count", "26", "--save", saved]
    subprocess.run([*command, *words], env=env, check=True)
    *_, last, _, _ = table("bfcl_verdicts.py", saved, home=tmp_path).splitlines()
    _, _, judged, here, there, same, _ = [cell.strip() for cell in last.split("|")]
    assert int(judged) > 13
    assert (here, judged) == (there, same)
