"""Run JavaScript and TypeScript: programs, tests and expressions, with Node.js."""

import json
import posixpath
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from agentgym.errors import SandboxError
from agentgym.plugins.languages import installed
from agentgym.sandbox.language import (
    COMPILER_NEEDS,
    TEMPORARY,
    CommandLine,
    Language,
    Steps,
    Toolchain,
    chosen,
    free_name,
)
from agentgym.sandbox.launch import published

_OLDEST = 18
_TEST = re.compile(r"(^test|[.\-_]test|^test-.+)$")
_HOOK = "_agentgym_evaluate"
_DRIVER = Path(__file__).with_name("values.cjs").read_text(encoding="utf-8")
_COMMON = """{
  const names = Object.keys(module.exports).filter((name) => {
    try { return Boolean(new Function(`const ${name} = 0`)); } catch { return false; }
  });
  const bound = names.length ? `const { ${names} } = module.exports;` : '';
  module.exports.%s = (text) => eval(`{ ${bound} ${text} }`);
}"""
_OLDEST_TSC = 6
_TYPESCRIPT = Path(__file__).with_name("typescript")
_LAYER = f"{TEMPORARY}/typescript"
_COMPILED = f"{TEMPORARY}/compiled"
_LOADED = ("--import", f"{_LAYER}/loader.mjs")
_TSC = (
    *("--outDir", _COMPILED, "--rootDir", ".", "--ignoreConfig", "--noEmitOnError"),
    *("--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"),
    *("--lib", "es2023", "--types", "", "--skipLibCheck", "--allowJs"),
    "--rewriteRelativeImportExtensions",
)


class JavaScript(Language):
    """Runs JavaScript code, with Node.js 18 or newer."""

    name = "javascript"
    title = "JavaScript (Node.js)"
    endings: ClassVar[tuple[str, ...]] = ("js", "mjs", "cjs")
    programs: ClassVar[tuple[str, ...]] = ("node",)
    package = "nodejs"
    needs: ClassVar[Mapping[str, int]] = {"memory_mb": 2048, "processes": 64}
    forks = False
    hook = "export const %s = (text) => eval(text);"
    """Added to a module, so that expressions can be evaluated in it."""

    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare the installed Node.js; see :meth:`Language.find`."""
        node = programs["node"]
        said = installed.ask(
            node, "-p", "process.version + ' ' + process.execPath"
        ).split(maxsplit=1)
        version, real = said[0], Path(said[1])
        if int(version.lstrip("v").split(".")[0]) < _OLDEST:
            raise SandboxError(f"it is {version}, older than {_OLDEST}.")
        if installed.is_of_the_system(real):
            return Toolchain(version=version)
        root = installed.readable_tree(
            real.parent, version, reachable=reachable, keep=("node",)
        )
        return Toolchain(version=version, bin=root, trees=(root,))

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that run the source file ``path`` with Node.js."""
        return Steps(chains=((("node", path, *args),),))

    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that run tests with Node's module ``node:test``."""
        found = [file for file in sorted(files) if self._is_test(file) or file in paths]
        run = chosen(found, paths, select)
        names = {
            part
            for identity in select
            for part in identity.partition("::")[2].split(" > ")
        }
        patterns = (f"--test-name-pattern=^{re.escape(name)}$" for name in names)
        reporter, runner = "{guest}/node_tests.mjs", "{guest}/node_runner.mjs"
        options = (f"--test-reporter={reporter}", *sorted(patterns))
        given = (json.dumps(run), json.dumps(select))
        return Steps(chains=((("node", *options, runner, *given),),), reader="node")

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return an added script that evaluates; see :meth:`Language.values`."""
        changed = dict(files)
        for file in {file for _, file, _ in asked} & {*files}:
            hook = _COMMON if self._is_common(files, file) else self.hook
            changed[file] = f"{files[file]}\n;{hook % _HOOK}\n"
        name = free_name(files, "_asked.cjs")
        given = [[number, file, f"({text})"] for number, file, text in asked]
        driver = _DRIVER.replace("HOOK", _HOOK)
        changed[name] = driver.replace("ASKED", json.dumps(given))
        return changed, Steps(chains=((("node", name),),), values=True)

    def _is_test(self, file: str) -> bool:
        """Return whether ``node --test`` would run a file."""
        parts = file.split("/")
        stem, _, ending = parts[-1].rpartition(".")
        if "node_modules" in parts or ending not in self.endings:
            return False
        return "test" in parts[:-1] or _TEST.search(stem) is not None

    def _is_common(self, files: Mapping[str, str], file: str) -> bool:
        """Return whether Node.js treats a file as a CommonJS module."""
        if file.endswith((".cjs", ".mjs")):
            return file.endswith(".cjs")
        folder = file
        while folder:
            folder = posixpath.dirname(folder)
            text = files.get(posixpath.join(folder, "package.json"))
            if text is not None:
                return re.search(r'"type"\s*:\s*"module"', text) is None
        return True


class TypeScript(JavaScript):
    """Compiles TypeScript with tsc 6 or newer, and runs it with Node.js.

    A loader for Node.js runs a source file's compiled text under the file's own name.
    """

    name = "typescript"
    title = "TypeScript"
    endings = ("ts", "mts")
    programs = ("node", "tsc")
    package = "nodejs npm, then npm install -g typescript"
    needs = COMPILER_NEEDS
    forks = True
    hook = "export const %s = (text: string): unknown => eval(text);"

    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare Node.js and the compiler; see :meth:`Language.find`."""
        node = super().find(programs, reachable=reachable)
        version = installed.ask(programs["tsc"], "--version")
        if int(version.removeprefix("Version ").partition(".")[0]) < _OLDEST_TSC:
            raise SandboxError(f"tsc is {version}, older than {_OLDEST_TSC}.")
        package = programs["tsc"].resolve().parents[1]

        def write(draft: Path) -> None:
            for folder in (package, *package.parent.glob("@typescript")):
                target = draft / "node_modules" / folder.name
                shutil.copytree(folder, target, symlinks=True)
            (draft / "bin").mkdir()
            (draft / "bin" / "tsc").symlink_to("../node_modules/typescript/bin/tsc")
            if node.bin is not None:
                (draft / "bin" / "node").symlink_to(node.bin / "node")
            for file in own_files:
                shutil.copy(file, draft)

        own_files = sorted(_TYPESCRIPT.iterdir())
        texts = [file.read_text(encoding="utf-8") for file in own_files]
        identity = json.dumps([version, str(package), str(node.bin), texts])
        folder = published("typescript", identity, write)
        return Toolchain(
            version=version,
            bin=folder / "bin",
            trees=(folder, *node.trees),
            variables={"AGENTGYM_COMPILED": _COMPILED},
            layers={"typescript": str(folder)},
        )

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile all sources and run ``path``."""
        return self._compiled(files, super().program(files, path, args))

    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that compile all sources and run tests of ``node:test``."""
        return self._compiled(files, super().tests(files, paths, select))

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return an added script that evaluates; see :meth:`Language.values`."""
        changed, steps = super().values(files, asked)
        return changed, self._compiled(changed, steps)

    def _is_common(self, files: Mapping[str, str], file: str) -> bool:
        return False

    def _compiled(self, files: Iterable[str], steps: Steps) -> Steps:
        """Return ``steps`` after the compiler's, with the loader."""
        sources = [x for x in sorted(files) if x.rpartition(".")[2] in self.endings]
        compile_it = ("tsc", *_TSC, *sources, f"{_LAYER}/node.d.ts")
        ((run,),) = steps.chains
        return replace(steps, chains=((compile_it, (run[0], *_LOADED, *run[1:])),))
