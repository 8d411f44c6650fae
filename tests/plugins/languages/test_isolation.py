"""Programs in other languages get out no more than those in Python."""

import signal
import uuid
from pathlib import Path

import pytest

from agentgym.sandbox import Program, Sandbox, SandboxConfig
from tests.plugins.languages.attacks import ESCAPE, EXHAUST, REACHES
from tests.plugins.languages.conftest import Run, fit_for
from tests.sandbox import processes


@pytest.mark.slow
def test_nothing_outside_is_reached(
    language: str, run: Run, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    for name in ("victim", "secret"):
        (open_folder / name).write_text("hunter2")
        (open_folder / name).chmod(0o666)
    result = run(ESCAPE[language], str(open_folder))
    assert result.ok, result
    assert "REACHED" not in result.stdout
    assert result.stdout.count("refused") >= REACHES
    assert {path.name for path in open_folder.iterdir()} == {"victim", "secret"}


@pytest.mark.slow
def test_the_attacks_work_where_nothing_stops_them(open_folder: Path) -> None:
    config = SandboxConfig(
        rung="unsafe",
        unsafe_local_exec=True,
        cache_bytes=0,
        languages=fit_for("landlock"),
    )
    if not config.languages:
        pytest.skip("no toolchain is installed")
    with Sandbox(config) as sandbox:
        for language in config.languages:
            path, source = ESCAPE[language]
            for name in ("victim", "secret"):
                (open_folder / name).write_text("x")
            command = Program(path, (str(open_folder),))
            result = sandbox.run_sync({path: source}, command, timeout_s=30)
            assert result.stdout.count("REACHED") >= 5, result
            (open_folder / "made").rmdir()


@pytest.mark.slow
def test_an_endless_loop_is_ended(language: str, run: Run) -> None:
    result = run(EXHAUST[language], "loop", timeout_s=8.0)
    assert result.timed_out, result
    assert result.stdout == "begun\n"


@pytest.mark.sweep
def test_memory_is_limited(language: str, run: Run, languages_sandbox: Sandbox) -> None:
    result = run(EXHAUST[language], "memory", timeout_s=60)
    assert result.status in ("killed", "exited"), result
    assert not result.ok
    again = languages_sandbox.run_sync({"a.py": "print(1)"}, Program("a.py"))
    assert again.stdout == "1\n"


@pytest.mark.sweep
def test_size_of_a_file_is_limited(language: str, run: Run) -> None:
    result = run(EXHAUST[language], "file")
    too_large = result.signal == signal.SIGXFSZ or result.exit_code not in (0, None)
    assert too_large, result


@pytest.mark.sweep
def test_output_is_limited(language: str, run: Run, languages_sandbox: Sandbox) -> None:
    result = run(EXHAUST[language], "output", timeout_s=4.0)
    assert result.timed_out, result
    assert result.truncated
    assert len(result.stdout) == languages_sandbox.config.limits.output_bytes


@pytest.mark.sweep
def test_no_process_is_left(
    language: str, run: Run, languages_sandbox: Sandbox
) -> None:
    marker = f"600.{uuid.uuid4().int}"
    result = run(EXHAUST[language], "daemon", marker)
    assert ("refused" in result.stdout) == languages_sandbox.rung.strict, result
    assert processes.with_argument(marker) == []


@pytest.mark.sweep
def test_number_of_processes_is_limited(
    language: str, run: Run, languages_sandbox: Sandbox
) -> None:
    result = run(EXHAUST[language], "processes", timeout_s=60)
    most = languages_sandbox.config.limits.processes
    count = int(result.stdout) if result.stdout else 0
    assert count <= most, result
    assert count > 0 or languages_sandbox.rung.strict, result
