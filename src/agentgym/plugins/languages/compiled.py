"""Run C++ and Java: each is a command that compiles and one that runs.

Tests are functions ``test…`` without parameters, which need no framework: C++ functions
in ``*_test.cpp``, Java methods in ``*Test.java``. `runner.cpp` and
`AgentGymRunner.java` call them, and write results as ``cargo test`` does.
"""

import re
import shutil
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from agentgym.plugins.languages import installed
from agentgym.sandbox.language import (
    COMPILER_NEEDS,
    PROGRAM,
    TEMPORARY,
    CommandLine,
    Language,
    SourceError,
    Steps,
    Toolchain,
    asked_by_file,
    chosen,
    free_name,
)
from agentgym.sandbox.launch import published

_HERE = Path(__file__).parent
# Options of the virtual machine: small, and quick to start.
_JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *("-XX:ReservedCodeCacheSize=64m", "-Xmx512m"),
)


class Compiled(Language):
    """A language whose files are compiled together, with a runner of their tests.

    Attributes:
        runner: Name of the runner's source file.
        test: Pattern of test files.
        case: Pattern of a test, with its name as the group.
    """

    needs = COMPILER_NEEDS
    runner: ClassVar[str]
    test: ClassVar[re.Pattern[str]]
    case: ClassVar[re.Pattern[str]]

    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare the installed compiler; see :meth:`Language.find`."""
        compiler = programs[self.programs[0]].resolve()
        version = installed.ask(compiler, "--version").partition("\n")[0]
        runner = _HERE / self.runner

        def write(draft: Path) -> None:
            shutil.copy(runner, draft)

        folder = published("runner", f"{self.runner} {runner.read_text()}", write)
        trees = self.trees(compiler)
        return Toolchain(
            version=version,
            bin=None if installed.is_of_the_system(compiler) else compiler.parent,
            trees=(folder, *trees),
            layers={self.name: str(folder)},
        )

    @property
    def runner_path(self) -> str:
        """The path of the runner in an execution."""
        return f"{TEMPORARY}/{self.name}/{self.runner}"

    def trees(self, compiler: Path) -> tuple[Path, ...]:
        """Return the folders of the compiler that executions must be able to read."""
        return ()

    @abstractmethod
    def compiled(self, sources: Sequence[str], target: str, *also: str) -> CommandLine:
        """Return the command that compiles source files to ``target``."""

    @abstractmethod
    def ran(self, target: str, *words: str) -> CommandLine:
        """Return the command that runs the result of :meth:`compiled`."""

    def sources(self, files: Iterable[str], *first: str) -> list[str]:
        """Return ``first`` and all other source files, without those of tests."""
        found = [
            file
            for file in sorted(files)
            if file.rpartition(".")[2] in self.endings and not self.test.search(file)
        ]
        return [*first, *(file for file in found if file not in first)]

    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that compile each test file with the sources and run it."""
        found = [file for file in sorted(files) if self.test.search(file)]
        chains = []
        run = chosen(found, paths, select)
        for number, file in enumerate(run):
            names = list(dict.fromkeys(self.case.findall(files[file])))
            wanted = [name for name in names if f"{file}::{name}" in select]
            chains.append(
                self.tested(files, file, f"{PROGRAM}{number}", wanted or names)
            )
        tests = tuple((file,) for file in run)
        return Steps(chains=tuple(chains), tests=tests, reader="rust")

    @abstractmethod
    def tested(
        self, files: Mapping[str, str], file: str, target: str, names: Sequence[str]
    ) -> tuple[CommandLine, ...]:
        """Return the chain that compiles a test file and runs some of its tests."""


class Cpp(Compiled):
    """Runs C++20, with g++ 10 or newer."""

    name = "cpp"
    title = "C++"
    endings = ("cpp", "cc", "cxx")
    programs = ("g++",)
    package = "g++"
    runner = "runner.cpp"
    test = re.compile(r"((^|/)test_\w+|_test|(^|/)tests/.+)\.(cpp|cc|cxx)$")
    case = re.compile(r"^(?:static )?void (test\w*)\(\s*\)", re.MULTILINE)

    def compiled(self, sources: Sequence[str], target: str, *also: str) -> CommandLine:
        """Return the command that compiles source files to ``target``."""
        # Of several functions of a name, such as main, the first file's is taken.
        twice = "-Wl,--allow-multiple-definition"
        return ("g++", "-std=c++20", "-I.", twice, "-w", *also, *sources, "-o", target)

    def ran(self, target: str, *words: str) -> CommandLine:
        """Return the command that runs the result of :meth:`compiled`."""
        return (target, *words)

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile ``path`` with the other sources and run it."""
        compile_it = self.compiled(self.sources(files, path), PROGRAM)
        return Steps(chains=((compile_it, self.ran(PROGRAM, *args)),))

    def tested(
        self, files: Mapping[str, str], file: str, target: str, names: Sequence[str]
    ) -> tuple[CommandLine, ...]:
        """Return the chain that compiles a test file and runs some of its tests."""
        cases = "".join(f"AGENTGYM_CASE({name})" for name in names)
        given = (f'-DAGENTGYM_FILE="{file}"', f"-DAGENTGYM_CASES={cases}")
        sources = self.sources(files, self.runner_path)
        return (self.compiled(sources, target, *given), self.ran(target))

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return files and steps that evaluate; see :meth:`Language.values`."""
        changed, chains = dict(files), []
        for number, (file, found) in enumerate(asked_by_file(asked).items()):
            lines = "".join(f"AGENTGYM_VALUE({at}, ({text}))\n" for at, text in found)
            name = free_name(changed, f"_asked{number}.inc")
            changed[name] = lines
            given = (f'-DAGENTGYM_FILE="{file}"', f'-DAGENTGYM_VALUES="{name}"')
            sources = self.sources(files, self.runner_path)
            target = f"{PROGRAM}{number}"
            compile_it = self.compiled(
                [each for each in sources if each != file], target, *given
            )
            chains.append((compile_it, self.ran(target)))
        return changed, Steps(chains=tuple(chains), values=True)


class Java(Compiled):
    """Runs Java, with a JDK 17 or newer."""

    name = "java"
    title = "Java"
    endings = ("java",)
    programs = ("javac", "java")
    package = "default-jdk-headless"
    runner = "AgentGymRunner.java"
    test = re.compile(r"Tests?\.java$")
    case = re.compile(r"\bvoid (test\w*)\(\s*\)")

    def trees(self, compiler: Path) -> tuple[Path, ...]:
        """Return the JDK, and the folder of its settings."""
        home = compiler.parents[1]
        settings = (home / "conf" / "security" / "java.security").resolve().parents[1]
        return installed.outside_system(*dict.fromkeys((home, settings)))

    def compiled(self, sources: Sequence[str], target: str, *also: str) -> CommandLine:
        """Return the command that compiles source files to ``target``."""
        flags = (f"-J{each}" for each in _JVM)
        words = ("javac", *flags, "-nowarn", "-encoding", "UTF-8", "-d", target)
        return (*words, self.runner_path, *sources, *also)

    def ran(self, target: str, *words: str) -> CommandLine:
        """Return the command that runs the result of :meth:`compiled`."""
        opened = ("--add-opens", "java.base/java.io=ALL-UNNAMED")
        flags = (*_JVM, "-ea", *opened, "-cp", target)
        return ("java", *flags, "AgentGymRunner", target, *words)

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile all sources and run the class of ``path``."""
        compile_it = self.compiled(self.sources(files, path), PROGRAM)
        run = self.ran(PROGRAM, "main", _class_of(path), *args)
        return Steps(chains=((compile_it, run),))

    def tested(
        self, files: Mapping[str, str], file: str, target: str, names: Sequence[str]
    ) -> tuple[CommandLine, ...]:
        """Return the chain that compiles a test file and runs some of its tests."""
        compile_it = self.compiled(self.sources(files, file), target)
        return (compile_it, self.ran(target, "tests", _class_of(file), *names))

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return files and steps that evaluate; see :meth:`Language.values`."""
        changed, chains = dict(files), []
        by_file = asked_by_file(asked)
        for file, lines in by_file.items():
            name = _class_of(file)
            body = re.search(rf"\b(class|enum|record)\s+{name}\b[^{{]*{{", files[file])
            if body is None:
                raise SourceError(f"{file} has no class {name}.")
            methods = "".join(
                f"\npublic static Object agentgym{at}() throws Throwable "
                f"{{ return {text}; }}"
                for at, text in lines
            )
            changed[file] = (
                files[file][: body.end()] + methods + files[file][body.end() :]
            )
        compile_it = self.compiled(self.sources(changed), PROGRAM)
        for number, (file, lines) in enumerate(by_file.items()):
            numbers = (str(at) for at, _ in lines)
            run = self.ran(PROGRAM, "values", _class_of(file), *numbers)
            chains.append((compile_it, run) if number == 0 else (run,))
        return changed, Steps(chains=tuple(chains), values=True)


def _class_of(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".java")
