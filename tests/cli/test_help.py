"""Help, completion, ``--set`` and ``--log-level``."""

import json

import pytest

from tests.cli.conftest import Command

GROUPS = ("scenarios", "tasks", "runs", "agents", "engine", "gpu")


def test_help_of_train_has_panels_and_choices(agentgym: Command) -> None:
    text = agentgym("train", "--help").out
    heads = [line for line in text.splitlines() if line and line[0] != " "]
    assert heads[1:] == [
        *(
            "Arguments:",
            "Usual options:",
            "Agent:",
            "Tasks:",
            "Judge:",
            "Model and engine:",
            "Training:",
        ),
        *("Machine:", "Run:", "Output:", "Options:"),
    ]
    assert "<str>" not in text
    for told in ("langchain|autogen|crewai|...", "--debug"):
        assert told in text
    ended = agentgym("train", "coding", "--set", "algorithm=a2c")
    assert ended.code == 2
    known = "'rloo', 'grpo', 'dr_grpo', 'dapo', 'reinforce++' or 'ppo'"
    assert f"algorithm = 'a2c': Input should be {known}" in ended.err
    ended = agentgym("train", "coding", "--algorithm", "grpo")
    assert "without an option: --set algorithm=VALUE" in ended.err


def test_help_begins_with_usual_options_and_ends_with_an_example(
    agentgym: Command,
) -> None:
    text = agentgym("train", "--help").out
    usual = text.partition("Usual options:")[2].partition("Agent:")[0]
    assert [line.split()[0] for line in usual.splitlines() if line[:4] == "  --"] == [
        *("--agent", "--framework", "--tasks", "--model", "--time", "--episodes"),
        *("--warm-start", "--gpu", "--resume", "--dry-run"),
    ]
    top = agentgym("--help").out
    assert agentgym("--debug", "--help").out == top
    assert max(map(len, top.splitlines())) <= 80
    listed = top.partition("Commands:\n")[2].partition("\n\n")[0]
    known = {"train", "eval", "rollout", "serve", "export", "doctor", *GROUPS}
    assert known <= {line.split()[0] for line in listed.splitlines()}
    for line in listed.splitlines():
        name, said = line[2:].split(maxsplit=1)
        assert said.endswith(".")
        text = agentgym(name, "--help").out
        assert f"Usage: agentgym {name}" in text
        assert (f"Example: agentgym {name} " in text) == (name not in GROUPS)
        assert "--no-no" not in text


def test_a_shell_completes_options_and_scenarios(
    agentgym: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--install-completion" in agentgym("--help").out
    monkeypatch.setenv("_AGENTGYM_COMPLETE", "complete_bash")
    for words, found in (
        ("agentgym train custo", "customer_support"),
        ("agentgym train --warm", "--warm-start"),
        ("agentgym train --framework aut", "autogen"),
        ("agentgym train --tools li", "live"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert found in agentgym().out.split()


@pytest.mark.slow
def test_set_reaches_settings_that_have_no_option(agentgym: Command) -> None:
    words = ["train", "coding", "--framework", "native", "--dry-run", "--json"]
    plan = agentgym(*words, "--set", "learning_rate=1e-4", "--set", "group_size=4")
    config = json.loads(plan.out)["config"]
    assert (config["learning_rate"], config["group_size"]) == (1e-4, 4)
    judge = ["--judge", "http://localhost:1#m", "--set", "judge.weight=2"]
    plan = agentgym(*words, *judge, "--set", "rent.max_cost=3", "--max-hourly", "1")
    config = json.loads(plan.out)["config"]
    assert config["judge"]["model"] == "http://localhost:1#m"
    assert config["judge"]["weight"] == 2
    assert config["rent"] == {"spot": False, "max_hourly": 1, "max_cost": 3}
    for given, said in (
        (["--set", "lerning_rate=1"], "did you mean 'learning_rate'?"),
        (["--set", "group_size=x"], "group_size = 'x'"),
        (["--set", "seed=1", "--seed", "2"], "seed is given twice"),
        (["--set", "judge.wieght=1"], "did you mean 'judge.weight'?"),
        (["--set", "rent.max_cost=1", "--max-cost", "2"], "max_cost is given twice"),
        (["lerning_rate=1e-4"], "did you mean 'learning_rate'?"),
    ):
        ended = agentgym(*words, *given)
        assert ended.code == 2
        assert said in ended.err or "written --set learning_rate=VALUE" in ended.err


def test_log_level_shows_the_log_wherever_it_stands(agentgym: Command) -> None:
    for words in (["--log-level", "info"], ["--log-level=INFO"]):
        assert agentgym("runs", "list", *words).code == 0
    ended = agentgym("runs", "list", "--log-level", "loud")
    assert ended.code == 2
    assert "--log-level loud: choose one of debug, info" in ended.err


def test_an_option_of_another_spelling_is_suggested(agentgym: Command) -> None:
    ended = agentgym("train", "coding", "--warm_start")
    assert "Did you mean --warm-start?" in ended.err
    assert "Did you mean 'train'?" in agentgym("trian").err
    assert "--set learning_rate=" in agentgym("train", "--learning-rate", "1").err
    assert "Did you mean 'coding'?" in agentgym("train", "CODING").err
    ended = agentgym("train", "coding", "tasks.jsonl")
    assert "`agentgym train --tasks tasks.jsonl`" in ended.err


def test_help_of_a_group_is_not_cut(agentgym: Command) -> None:
    text = agentgym("tasks", "--help").out.partition("Commands:")[2]
    assert "..." not in text
    assert {"starter", "record", "from-logs", "from-reviews"} <= set(text.split())
