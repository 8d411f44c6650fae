"""Settings from files and words: what cannot be meant gets its own sentence."""

from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.core.settings import read_assignments
from agentgym.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty. Write one setting a line"),
        ("# only a remark\n", "is empty"),
        ("- episodes\n", "holds a list. Write one setting a line"),
        ("[]\n", "holds a list"),
        ("coding\n", "holds the value 'coding'"),
        ("episodes: {\n", "Cannot read the configuration"),
        ("\xff\xfe\0", "Cannot read the configuration"),
        ("1: 2\n", "unknown setting '?1"),
        ("epsodes: 300\n", "'epsodes'.*did you mean 'episodes'"),
        ("x: &x {max_num_seqs: 4}\nvllm: *x\n", "unknown setting 'x'"),
        (f"vllm: {'[' * 5000}\n", "nested too deep"),
        ("#" * (1 << 20) + "\nepisodes: 3\n", "characters"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_one_paragraph(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=said) as refused:
        TrainingConfig.from_yaml(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("n" * 300, "the name takes 300 bytes, and 200 are the most"),
        ("ü" * 150, "the name takes 300 bytes"),
        ("a/b", "name = 'a/b': a name has letters"),
        (".hidden", "begins with none of the last two"),
        ("-x", "begins with none of the last two"),
        ("two words", "a name has letters"),
        ("line\n", "a name has letters"),
        ("nul\0", "a name has letters"),
        ("", "a name has letters"),
    ],
)
def test_a_name_that_fits_no_file_system_is_refused(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainingConfig.create(name=name)


@pytest.mark.parametrize("name", ["größe-日本", "ü" * 100, "v1.2_b-3", "1"])
def test_other_names_are_fine(name: str) -> None:
    assert TrainingConfig.create(name=name).name == name


@pytest.mark.parametrize(
    "setting",
    [
        *("episodes", "seed", "group_size", "test_tasks", "eval_tasks", "workers"),
        *("concurrency", "max_tokens", "rollout_timeout_s", "eval_samples"),
    ],
)
def test_a_number_beyond_all_machines_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"{setting} = 10{{30}}: Input should be"):
        TrainingConfig.create(**{setting: 10**30})


def test_a_long_value_is_not_quoted_whole() -> None:
    with pytest.raises(ConfigError) as refused:
        TrainingConfig.create(algorithm="x" * 5000)
    assert len(str(refused.value)) < 300


def test_keys_and_values_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    """In YAML 1.1 the key ``yes`` is true, and ``1e-4`` is text."""
    file = tmp_path / "run.yaml"
    file.write_text("yes: true\nname: on\nlearning_rate: 1e-4\nearly_stop: no\n")
    config = TrainingConfig.from_yaml(file)
    assert (config.yes, config.name) == (True, "on")
    assert (config.learning_rate, config.early_stop) == (1e-4, False)


def test_assignments_reach_every_setting_and_name_the_nearest() -> None:
    words = ["learning-rate=1e-4", "agent.allow_tools=[a, b]", "early_stop=false"]
    words += ["vllm.max_num_seqs=8"]
    assert read_assignments(words, TrainingConfig) == {
        "learning_rate": 1e-4,
        "agent.allow_tools": ["a", "b"],
        "early_stop": False,
        "vllm.max_num_seqs": 8,
    }
    for word, said in (
        ("lerning_rate=1", "unknown setting 'lerning_rate', did you mean"),
        ("episodes", "'episodes' does not set anything: write KEY=VALUE"),
        ("vllm={a", "cannot be read as YAML"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_assignments([word], TrainingConfig)
