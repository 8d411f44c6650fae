"""The same interpreter and packages on every rung, and verdicts as outside."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym.errors import SandboxError
from agentgym.sandbox import (
    Argv,
    PythonScript,
    RunTests,
    Sandbox,
    SandboxConfig,
    gives,
    launch,
)
from agentgym.sandbox.guest.settings import RUNGS
from agentgym.sandbox.ladder import probe
from tests.sandbox.conftest import ISOLATING

SEEN = """\
import sys, sysconfig
print(sys.version_info[:2], len(sys.path), sys.prefix != sys.base_prefix)
found = []
for name in ("pip", "planted", "wave", "yaml"):
    try:
        found.append(__import__(name).__name__)
    except ImportError:
        pass
print(found)
"""
WAYS = (
    PythonScript("seen.py"),
    Argv(("python", "seen.py")),
    Argv(("python3", "seen.py")),
    Argv(("sh", "-c", "exec python seen.py")),
)


def open_on(rung: str, *folders: Path) -> Sandbox:
    if reason := probe(RUNGS[rung]):
        pytest.skip(f"the rung {rung} does not work here: {reason}")
    return Sandbox(
        SandboxConfig(rung=rung, concurrency=1, python_path=folders, cache_bytes=0)
    )


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A package below /tmp that nobody but its owner can read, one file a link."""
    folder = tmp_path / "private" / "library"
    (folder / "planted" / "deep").mkdir(parents=True)
    (folder / "planted" / "__init__.py").write_text("from planted.deep.more import X\n")
    (folder / "planted" / "deep" / "more.py").write_text("X = 1\n")
    (folder / "wave.py").write_text("raise SystemExit('this hides a standard module')")
    (folder / "planted" / "link.py").symlink_to("deep/more.py")
    for path, _ in [*launch.entries(folder.parent)]:
        if not Path(path).is_symlink():
            os.chmod(path, 0o700 if Path(path).is_dir() else 0o600)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("rung", ISOLATING)
def test_the_same_packages_by_every_way(rung: str, library: Path) -> None:
    files = {"seen.py": SEEN}
    with open_on(rung, library) as sandbox:
        told = [sandbox.run_sync(files, way) for way in WAYS]
        assert {result.stdout.splitlines()[-1] for result in told} == {
            "['planted', 'wave']"
        }, told
        assert len({result.stdout for result in told}) == 1, told
        tests = {
            "test_a.py": "import planted\ndef test_x():\n    assert planted.X == 1"
        }
        assert sandbox.run_sync(tests, RunTests()).ok
        verdict = gives(
            sandbox, {"a.py": "import planted.link as p"}, {"a.py": {"p.X": 1}}
        )
        assert verdict, verdict
        spoil = "import planted\nopen(planted.__file__, 'w')"
        refused = sandbox.run_sync({"a.py": spoil}, PythonScript("a.py"))
        assert refused.exit_code == 1, refused
    assert (library / "planted" / "deep" / "more.py").read_text() == "X = 1\n"
    with open_on(rung) as sandbox:
        told = [sandbox.run_sync(files, way) for way in WAYS]
        assert {result.stdout.splitlines()[-1] for result in told} == {"['wave']"}, told


@pytest.mark.parametrize("rung", ISOLATING)
def test_what_is_installed_beside_the_interpreter_is_not_seen(rung: str) -> None:
    files = {"a.py": "import sys\nprint([p for p in sys.path if 'packages' in p])"}
    base = str(launch.own_python().parents[1])
    with open_on(rung) as sandbox:
        for way in (PythonScript("a.py"), Argv(("python", "a.py"))):
            [seen] = eval(sandbox.run_sync(files, way).stdout)
            assert not seen.startswith(base)


@pytest.mark.parametrize("rung", ISOLATING)
def test_programs_found_through_links_run_on_every_rung(rung: str) -> None:
    """Debian's alternatives are links below /etc."""
    if not Path("/etc/alternatives/awk").exists():
        pytest.skip("this machine has no alternatives")
    with open_on(rung) as sandbox:
        result = sandbox.run_sync({}, Argv(("awk", "BEGIN { print 6 * 7 }")))
    assert result.stdout == "42\n", result


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(SandboxError, match=f"python_path names '{wrong}'"):
            SandboxConfig(python_path=(wrong,))


def test_too_large_a_private_folder_is_refused(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's sandboxes run as another user")
    monkeypatch.setattr(launch, "_MOST_COPIED", 10)
    with (
        open_on("landlock", library) as sandbox,
        pytest.raises(SandboxError, match="too large to copy"),
    ):
        sandbox.run_sync({"a.py": ""}, PythonScript("a.py"))


OUTSIDE = {
    "test_weak.py": """\
import gc, weakref

class Node:
    pass

def test_nothing_is_kept_after_an_assert():
    node = Node()
    seen = weakref.ref(node)
    assert seen() is node
    assert node == seen()
    del node
    assert seen() is None

class Checked:
    assert 1 < 2

def test_nothing_is_kept_by_a_loop():
    nodes = [Node() for _ in range(3)]
    seen = [weakref.ref(node) for node in nodes]
    while nodes:
        assert nodes.pop() != None
    assert [ref() for ref in seen] == [None] * 3
""",
    "test_order.py": """\
CALLS = []

def call(value):
    CALLS.append(value)
    return value

def test_sides_are_evaluated_once():
    assert call(1) < call(2), call("message")
    assert CALLS == [1, 2]

def test_chains():
    assert 1 < 2 < 3
    assert not 1 < 3 < 2

def test_a_message_says_why():
    assert call(1) == call(2), f"{call(3)}"

def test_walrus():
    assert (n := 5) == 5
    assert n == 5

def test_a_loop():
    for n in range(3):
        assert n == n
    assert n == 3

def test_a_generator():
    def numbers():
        assert 1 == 1
        yield 2
    assert list(numbers()) == [2]
""",
    "tests/test_beside.py": """\
from helper import VALUE

def test_what_lies_beside_is_imported():
    assert VALUE == 7
""",
    "tests/helper.py": "VALUE = 7\n",
    "inner/__init__.py": "",
    "inner/values.py": "VALUE = 8\n",
    "inner/test_relative.py": """\
from .values import VALUE
from inner import values

def test_relative():
    assert (VALUE, values.VALUE, __name__) == (8, 8, "inner.test_relative")
""",
    "test_methods.py": """\
class TestCart:
    kind = "cart"

    def setup_method(self):
        self.items = [1]

    def test_right(self):
        assert self.items == [1]

    def test_wrong(self):
        assert self.kind == "shop"

class Helper:
    def test_not_this(self):
        assert False
""",
    "test_odd.py": """\
test_number = 3

def test_error():
    {}["x"]

def test_exit():
    raise SystemExit(0)

def tested():
    assert False

lambda_ = test_lambda = lambda: None
""",
}


@pytest.mark.slow
def test_verdicts_are_those_of_pytest(sandbox: Sandbox, tmp_path: Path) -> None:
    """Plain tests, outside with pytest and inside with the built-in runner."""
    for name, text in OUTSIDE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    outside = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-rA",
            "-q",
            "--tb=no",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (line.split() for line in outside.stdout.splitlines())
    right = {
        line[1]: line[0] == "PASSED"
        for line in lines
        if line[:1] in (["PASSED"], ["FAILED"], ["ERROR"])
    }
    result = sandbox.run_sync(OUTSIDE, RunTests())
    found = {test.name: test.outcome == "passed" for test in result.tests or ()}
    assert len(right) > 15, outside.stdout
    assert found == right


def test_an_assert_that_failed_keeps_nothing_either(sandbox: Sandbox) -> None:
    """Here pytest does, and a plain assert does not."""
    text = """\
import gc, weakref

class Node:
    pass

def test_nothing_is_kept_after_one_that_failed():
    node = Node()
    seen = weakref.ref(node)
    try:
        assert node == 1
    except AssertionError:
        pass
    del node
    gc.collect()
    assert seen() is None
"""
    assert sandbox.run_sync({"test_a.py": text}, RunTests()).ok


def test_what_only_pytest_knows_is_an_error(best_sandbox: Sandbox) -> None:
    text = """\
import unittest

class Cases(unittest.TestCase):
    def test_it(self):
        pass

def test_fixture(tmp_path):
    pass
"""
    result = best_sandbox.run_sync({"test_a.py": text}, RunTests())
    assert [test.outcome for test in result.tests or ()] == ["error", "error"]
    assert "pytest in python_path" in (result.tests or ())[0].message
