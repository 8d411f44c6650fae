"""The ways to name a file or a folder; each leads to exactly one path."""

from random import Random

from agentgym.core.task import Split

MODULE = {
    Split.TRAIN: (
        "{p}/{m}.py",
        "{p}/{m}.py",
        "the file {p}/{m}.py",
        "the {m} module of {p}",
        "the {m} module in {p}",
        "module {m} of {p}",
        "{m}.py in {p}",
        "{m}.py in the {p} package",
        "the {m} file in {p}",
        "{p}.{m}",
    ),
    Split.VALIDATION: (
        "the module {m} in {p}",
        "the file {m}.py in {p}",
        "the {m} module of the {p} package",
        "the file {m}.py of {p}",
    ),
    Split.TEST: (
        "module {m} in the {p} package",
        "the {m}.py file inside {p}",
        "the {m} file inside the {p} package",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the {m} portion of {p}",
        "the {m} source belonging to {p}",
    ),
}
TESTS = {
    Split.TRAIN: (
        "tests/test_{m}.py",
        "the file tests/test_{m}.py",
        "test_{m}.py",
        "the test file of {m}",
        "the test file of the {m} module",
        "the {m} test file",
    ),
    Split.VALIDATION: (
        "the file test_{m}.py",
        "the test file of module {m}",
        "test_{m}.py in tests",
        "the test file of {m}.py",
    ),
    Split.TEST: (
        "the test file for {m}",
        "the file with the tests of {m}",
        "the test file for the {m} module",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the pytest file covering {m}",
        "the checks file of {m}",
    ),
}
TESTS_OF = {
    Split.TRAIN: (
        "tests/test_{m}.py",
        "test_{m}.py",
        "the tests of {m}",
        "the tests of the {m} module",
        "the {m} tests",
        "the tests in test_{m}.py",
        "the tests in tests/test_{m}.py",
        "the tests of {m}.py",
    ),
    Split.VALIDATION: (
        "the tests of module {m}",
        "the {m} module tests",
        "the tests in the {m} test file",
        "the {m}.py tests",
    ),
    Split.TEST: (
        "the tests written for {m}",
        "the tests inside test_{m}.py",
        "the tests for module {m}",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the checks on {m}",
        "the testcases covering {m}",
    ),
}
SCRIPT = {
    Split.TRAIN: (
        "{s}.py",
        "{s}.py",
        "the {s} script",
        "the script {s}",
        "the script {s}.py",
        "the file {s}.py",
    ),
    Split.VALIDATION: (
        "the {s}.py script",
        "script {s}",
        "the script file {s}.py",
        "script {s}.py",
    ),
    Split.TEST: (
        "the {s} script file",
        "the script in {s}.py",
        "our {s} script",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the {s} entry point",
        "the {s} executable",
    ),
}
FOLDER = {
    Split.TRAIN: (
        "{d}",
        "{d}/",
        "the {d} folder",
        "the folder {d}",
        "the folder {d}/",
    ),
    Split.VALIDATION: (
        "folder {d}",
        "the {d}/ folder",
        "folder {d}/",
        "our {d} folder",
    ),
    Split.TEST: (
        "{d}, a folder of our project",
        "the project folder {d}/",
        "the {d} folder of our project",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the {d} subtree",
        "the {d} area",
    ),
}
ROOT = {
    Split.TRAIN: (
        "the project",
        "this project",
        "the whole project",
        "our project",
    ),
    Split.VALIDATION: (
        "this whole project",
        "our whole project",
    ),
    Split.TEST: (
        "our full project",
        "our complete project",
    ),
    Split.OUT_OF_VOCABULARY: (
        "the workspace",
        "the project in its entirety",
    ),
}


def module(rng: Random, split: Split, package: str, name: str) -> str:
    """Refer to the module ``package/name.py``."""
    return _draw(rng, split, MODULE).format(p=package, m=name)


def test_file(rng: Random, split: Split, name: str) -> str:
    """Refer to ``tests/test_name.py`` as a file."""
    return _draw(rng, split, TESTS).format(m=name)


def tests_of(rng: Random, split: Split, name: str) -> str:
    """Refer to ``tests/test_name.py`` as tests to run."""
    return _draw(rng, split, TESTS_OF).format(m=name)


def script(rng: Random, split: Split, path: str) -> str:
    """Refer to a script by its path."""
    return _draw(rng, split, SCRIPT).format(s=path.removesuffix(".py"))


def folder(rng: Random, split: Split, path: str) -> str:
    """Refer to a folder, ``"."`` for the whole project."""
    if path == ".":
        return _draw(rng, split, ROOT)
    return _draw(rng, split, FOLDER).format(d=path)


def _draw(rng: Random, split: Split, forms: dict[Split, tuple[str, ...]]) -> str:
    """Draw a form: a held-out split mixes its own with those of training."""
    own = forms[split]
    if split is Split.TRAIN or rng.random() < 0.5:
        return rng.choice(own)
    return rng.choice(forms[Split.TRAIN])
