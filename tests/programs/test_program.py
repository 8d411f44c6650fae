"""Commands: how they are read, located and given their task."""

from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ProgramError, UsageError
from agentgym.programs.program import ProgramCommand

parse = ProgramCommand.parse


def test_files_of_the_project_get_their_paths(tmp_path: Path) -> None:
    (tmp_path / "agent.js").touch()
    (tmp_path / "run").touch()
    (tmp_path / "test").mkdir()
    program = parse("node agent.js --quiet test gone.js {project}/agent.js")
    words = program.located(tmp_path).words
    agent = str(tmp_path / "agent.js")
    assert words == ("node", agent, "--quiet", "test", "gone.js", agent)
    assert parse("./run").located(tmp_path).words == (str(tmp_path / "run"),)
    assert parse("run").located(tmp_path).words == ("run",)  # of the PATH
    assert program.located(tmp_path).located(tmp_path).words == words


def test_a_reference_is_the_command_again() -> None:
    program = parse("sh -c 'echo \"{task}\"'")
    assert program.reference.startswith("command:sh -c ")
    assert parse(program.reference) == program


def test_a_request_is_one_argument_whatever_it_says() -> None:
    file = Path("/somewhere/task.txt")
    said = "Order {task_file}; rm -rf $HOME 'x"
    assert parse("agent --do={task}").arguments(said, file) == ["agent", f"--do={said}"]
    assert parse("agent {task_file}").arguments(said, file)[1] == str(file)
    both = parse("agent --from={task_file}:{task}").arguments(said, file)[1]
    assert both == f"--from={file}:{said}"
    assert parse("agent").reads_input
    assert not parse("agent {task_file}").reads_input
    with pytest.raises(ProgramError, match="use stdin"):
        parse("agent {task}").arguments("a\0b", file)


def test_a_command_says_how_many_tasks_a_process_takes() -> None:
    program = parse("node agent.js --tasks={tasks:50} {project}")
    assert program.tasks == 50
    assert program.arguments("{task}", Path("/x"))[2] == "--tasks=50"
    assert parse(program.reference) == program
    assert parse("node agent.js").tasks is None


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("agent {tasks}", "write {tasks:50} once"),
        ("agent {tasks:0}", "from 1 to 1,000,000"),
        ("agent {tasks:2} {tasks:3}", "write {tasks:50} once"),
        ("agent {tasks:9} {task}", "each task is a line of standard input"),
        ("", "--command is empty"),
        ("node 'agent.js", "No closing quotation"),
        ("no-such-program-here x", "program 'no-such-program-here' was not found on"),
    ],
)
def test_a_command_that_cannot_be_meant(command: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse(command).require()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("node /srv/shop/desk.mjs --fast", "desk"),
        ("python agent.py", "shop_tasks"),
        ("aider --message {task}", "aider"),
        ("python /srv/Loans-Desk.py", "loans_desk"),
    ],
)
def test_an_agent_is_named_after_its_file(command: str, name: str) -> None:
    config = TrainingConfig.create(
        scenario="shop_tasks.jsonl", agent=f"command:{command}"
    )
    assert config.agent_name == name
