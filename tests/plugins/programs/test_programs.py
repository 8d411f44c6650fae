"""Programs in rollouts: trained as they are, and every misdeed named.

Slow: workers, and a process an episode.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import AGENT_CRASHED, RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.plugins.collect.batch import run_rollouts
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.processes import MARK, processes_of

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("bookshop.py")
COMMAND = f"{sys.executable} -S {PROGRAM}"


def write_tasks(folder: Path, requests: list[str], **line: Any) -> Path:
    """Write a tasks file; every task is of the split that all need."""
    expect = [{"tool": "stock", "args": {"title": "Dune"}}]
    splits = [*[Split.TRAIN] * 6, *[Split.VALIDATION] * 3, *[Split.TEST] * 3]
    filled = [*requests, *(f"Filler {n}" for n in range(12 - len(requests)))]
    splits += [Split.TRAIN] * (len(filled) - 12)
    line = line or {"expect": expect}
    file = folder / "shop.jsonl"
    rows = [
        {"instruction": request, "split": split, "id": request, **line}
        for request, split in zip(filled, splits, strict=True)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def look_then_answer(request: ChatRequest) -> Reply:
    if request.messages[-1]["role"] == "tool":
        return Reply(content="There are three copies.")
    return Reply(calls=[("stock", {"title": "Dune"})])


def rolled_out(
    folder: Path, scenario: str, count: int, command: str = COMMAND, **settings: Any
) -> dict[str, Trajectory]:
    """Run a program on the training tasks; return its trajectories by task."""
    config = located(
        TrainingConfig.create(
            scenario=scenario,
            agent=f"command:{command}",
            max_attempts=1,
            workers=1,
            **settings,
        )
    )
    tasks = [
        task
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
        for task in get_scenario(config.scenario).tasks(split, 0, 99)
        if not task.instruction.startswith("Filler")
    ]
    assert len(tasks) == count
    requests = [
        RolloutRequest(f"r{n}", task, train=True, group=task.id, step=1)
        for n, task in enumerate(tasks)
    ]
    policy = ScriptedPolicy(look_then_answer)
    run = folder / "run"
    run.mkdir()
    with RolloutSession(config, policy, run, 1) as session:
        made = session.run(requests, lambda _: None)
    return {each.task_id: each for each in made}


def test_misdeeds_are_named_and_no_reward_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = str(tmp_path)
    monkeypatch.setenv(MARK, mark)
    named = {
        "asks no model": "program: no model call",
        "prints nothing": "program: no answer",
        "loses its connection": "program: exit",
        "floods": "program: output",
        "never ends": "timeout",
        "holds much": "program: memory",
    }
    fine = ["is well-behaved", "leaves children", "chats"]
    tasks = write_tasks(tmp_path, [*named, "exits", *fine])
    settings = {"rollout_timeout_s": 20, "agent.program_memory_mb": 150}
    made = rolled_out(tmp_path, str(tasks), len(named) + len(fine) + 1, **settings)
    for request, kind in named.items():
        dropped = made[request]
        assert dropped.status is RolloutStatus.DROPPED, request
        assert (dropped.reason and dropped.reason.kind, dropped.reward) == (kind, None)
    crashed = made["exits"]  # after an answer of the model, which is to blame
    assert (crashed.status, crashed.reward) == (RolloutStatus.FAILED, 0.0)
    assert crashed.reason
    assert crashed.reason.kind == AGENT_CRASHED
    assert "ValueError: no such shelf" in crashed.reason.detail
    chat = f"--command \"sh -c '(cat; echo; echo exit) | {COMMAND}'\""
    assert chat in str(made["floods"].reason)
    assert "OPENAI_BASE_URL" in str(made["asks no model"].reason)
    for request in fine:
        solved = made[request]
        assert (solved.reward, solved.success) == (1.0, True), solved.reason
        [call] = solved.get_tool_calls()
        assert (call.outcome, call.result) == (ToolOutcome.OK, "3 copies")
        assert len(solved.model_calls) == 2
        assert [c.prompt_ids != [] for c in solved.model_calls] == [True, True]
    left = [words for words in processes_of(mark, 10) if "sleep" in words]
    assert left == []


def test_a_check_command_judges_the_folder(tmp_path: Path) -> None:
    check = tmp_path / "check.py"
    check.write_text(
        "import json, os, sys\n"
        "task = json.load(open(os.environ['AGENTGYM_TASK_JSON']))\n"
        "assert open('kept.txt').read() == 'kept'\n"
        "assert sys.stdin.read() == open('answer.txt').read()\n"
        "if 'half' in task['id']:\n"
        "    print('looked')\n"
        "    print(json.dumps({'reward': 0.5, 'why': 'half of it'}))\n"
        "elif 'odd' in task['id']:\n"
        "    print(json.dumps({'reward': 7}))\n"
        "elif 'crash' in task['id']:\n"
        "    sys.exit(2)\n"
        "else:\n"
        "    sys.exit('wrong' in task['id'])\n"
    )
    requests = ["half", "odd", "crash", "right", "wrong"]
    tasks = write_tasks(tmp_path, requests, files={"kept.txt": "kept"})
    source = TaskSource(str(tasks), check_command=f"{sys.executable} -S {check}")
    made = rolled_out(tmp_path, str(source), len(requests))
    scores = {name: (each.reward, each.success) for name, each in made.items()}
    assert scores == {
        "half": (0.5, False),
        "odd": (None, None),
        "crash": (None, None),
        "right": (1.0, True),
        "wrong": (0.0, False),
    }
    for name, wording in {"odd": "is not a reward", "crash": "exit code 2"}.items():
        reason = made[name].reason
        assert reason is not None
        assert (reason.kind, wording in reason.detail) == ("check command", True)
    assert made["right"].get_tool_calls()[0].outcome is ToolOutcome.OK


def test_a_program_posts_its_own_reward(tmp_path: Path) -> None:
    requests = ["posts", "says nothing of a reward"]
    tasks = write_tasks(tmp_path, requests, expect=[])
    made = rolled_out(tmp_path, str(TaskSource(str(tasks), check="posted")), 2)
    assert made["posts"].reward == 0.25
    silent = made["says nothing of a reward"]
    assert (silent.status, silent.reward) == (RolloutStatus.DROPPED, None)
    assert "AGENTGYM_REWARD_URL" in str(silent.reason)


def test_a_program_that_does_not_read_its_task_is_told(tmp_path: Path) -> None:
    tasks = write_tasks(tmp_path, [])
    command = f"command:sh -c 'echo Buy Emma | {COMMAND} # {{instruction}}'"
    config = TrainingConfig.create(scenario=str(tasks), agent=command)
    assert config.in_flight == 16
    assert "where its command says {task}" in str(probed(located(config)).concerns)


HAND_OFF = """
import pathlib, sys
with open({log!r}, "a") as log:
    log.write("started ")
sys.path.insert(0, {folder!r})
import bookshop
agents = {{"Stock": bookshop.TOOLS}}
passing = bookshop.described("transfer", "Pass it on.", agent_name=bookshop.TEXT)
messages = [{{"role": "user", "content": sys.stdin.read()}}]
said = bookshop.ask(messages, tools=[passing])
[call] = said["tool_calls"]
named = bookshop.json.loads(call["function"]["arguments"])
bookshop.TOOLS = agents[named["agent_name"]]
print(bookshop.serve(messages[0]["content"]))
"""


def test_a_trial_passes_control_as_the_tasks_do_and_a_crash_is_a_warning(
    tmp_path: Path,
) -> None:
    log, program = tmp_path / "starts", tmp_path / "hand_off.py"
    program.write_text(HAND_OFF.format(log=str(log), folder=str(PROGRAM.parent)))

    def looked_at(*expect: Any) -> AgentReport:
        log.write_text("")
        tasks = write_tasks(tmp_path, [], expect=expect)
        agent = f"command:{sys.executable} -S {program}"
        config = TrainingConfig.create(scenario=str(tasks), agent=agent)
        report = probed(located(config))
        assert report.problems == []
        return report

    right = {"tool": "transfer", "args": {"agent_name": "Stock"}}
    stock = {"tool": "stock", "args": {"title": "Dune"}}
    report = looked_at(right, stock)
    assert [*report.offered] == ["transfer", "stock", "order"]
    assert not any("crashed" in concern for concern in report.concerns)
    assert len(log.read_text().split()) <= 4
    wrong = {"tool": "transfer", "args": {"agent_name": "Nobody"}}
    concerns = looked_at(wrong).concerns
    assert any("Its own code crashed" in each for each in concerns)


async def test_rollouts_without_training_run_the_same_program() -> None:
    async def model(messages: list[Any], **options: Any) -> Any:
        assert [tool["function"]["name"] for tool in options["tools"]] == [
            "stock",
            "order",
        ]
        if messages[-1]["role"] == "tool":
            return "Three."
        arguments = json.dumps({"title": "Dune"})
        call = {"id": "c1", "function": {"name": "stock", "arguments": arguments}}
        return {"content": None, "tool_calls": [call]}

    tasks = ["How many copies of Dune?"] * 5
    made = await run_rollouts(tasks, llm=model, agent=f"command:{COMMAND}")
    for each in made.trajectories:
        assert (each.answer, len(each.model_calls)) == ("Three.", 2)
        assert [call.result for call in each.get_tool_calls()] == ["3 copies"]


def test_a_program_is_told_where_its_task_is(tmp_path: Path) -> None:
    shown = tmp_path / "show.py"
    shown.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import bookshop\n"
        "said = open(sys.argv[1]).read(), os.environ['AGENTGYM_TASK_ID'], sys.argv[2]\n"
        "is_seen = said[1] == 'tools'\n"
        "assert len(set(said)) == 1 + is_seen and sys.stdin.read() == '', said\n"
        "assert os.listdir() == [], os.listdir()\n"
        "assert os.environ['AGENTGYM_PROJECT'] == sys.argv[3]\n"
        "print(bookshop.serve(said[0]))\n"
    )
    command = f"{sys.executable} -S {shown} {{task_file}} {{task}} {{project}}"
    tasks = write_tasks(tmp_path, ["Is 'Dune' {there}?"])
    [made] = rolled_out(tmp_path, str(tasks), 1, command).values()
    assert made.success, made.reason


def test_a_program_that_takes_several_tasks_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = str(tmp_path)
    monkeypatch.setenv(MARK, mark)
    named = {
        "asks no model": "program: no model call",
        "loses its connection": "program: error",
        "ends the process": "program: exit",
        "never ends": "timeout",
    }
    fine = [f"names the process {n}" for n in range(9)]
    check = tmp_path / "check.py"
    check.write_text(
        "import os, sys\n"
        "pid = sys.stdin.read()\n"
        f"with open({str(tmp_path / 'pids')!r}, 'a') as file: print(pid, file=file)\n"
    )
    tasks = write_tasks(tmp_path, [*named, "exits", *fine], expect=[])
    settings = {"rollout_timeout_s": 20, "concurrency": 2}
    command = COMMAND + " --tasks {tasks:50}"
    source = TaskSource(str(tasks), check_command=f"{sys.executable} -S {check}")
    made = rolled_out(tmp_path, str(source), 14, command, **settings)
    for request, kind in named.items():
        reason = made[request].reason
        assert (reason and reason.kind, made[request].reward) == (kind, None), request
    reason = made["exits"].reason
    assert (reason and reason.kind, made["exits"].reward) == (AGENT_CRASHED, 0.0)
    assert "ValueError: no such shelf" in str(reason)
    assert [made[request].reward for request in fine] == [1.0] * len(fine)
    pids = [pid for pid in (tmp_path / "pids").read_text().split() if pid.isdigit()]
    assert len(pids) == len(fine)
    assert len(set(pids)) <= 4  # two at a time, and two that had to be replaced
    assert processes_of(mark, 10) == []


def test_an_attempt_that_is_cut_ends_by_itself_or_with_its_process(
    tmp_path: Path,
) -> None:
    tasks = write_tasks(tmp_path, ["calls for ever", "ignores its model"])
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import bookshop\n"
        "def attempt(request, serve=bookshop.serve):\n"
        "    while True:\n"
        "        try: serve(request)\n"
        "        except Exception:\n"
        "            if 'ignores' not in request: raise\n"
        "            time.sleep(0.1)\n"
        "bookshop.attempt = attempt\n"
        "bookshop.take_tasks()\n"
    )
    command = f"{sys.executable} -S {stubborn} {{tasks:9}}"
    made = rolled_out(tmp_path, str(tasks), 2, command, rollout_timeout_s=60)
    for each in made.values():
        assert each.reason is not None
        assert (each.reason.kind, each.success) == ("max_turns", True)
