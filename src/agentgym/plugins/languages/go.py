"""Run Go programs and tests, and evaluate Go expressions, with the ``go`` command."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agentgym.plugins.languages import installed
from agentgym.sandbox.guest.box import remove_tree
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
    folder_of,
    free_name,
)
from agentgym.sandbox.launch import published

_TEST = re.compile(r"^func (Test[^a-z\s(]?\w*)\(\w* ?\*testing\.T\)", re.MULTILINE)
_PACKAGE = re.compile(r"^package\s+(\w+)", re.MULTILINE)
# Packages of Go's standard library that are compiled once, for all executions.
_STANDARD = """
bufio bytes cmp container/heap container/list container/ring context crypto/md5
crypto/sha1 crypto/sha256 encoding/base64 encoding/binary encoding/csv encoding/hex
encoding/json errors flag fmt hash/crc32 hash/fnv io iter log maps math math/big
math/bits math/cmplx math/rand math/rand/v2 os path path/filepath reflect regexp runtime
runtime/debug slices sort strconv strings sync sync/atomic testing testing/quick
text/tabwriter text/template time unicode unicode/utf16 unicode/utf8
"""
_VARIABLES = {
    "CGO_ENABLED": "0",
    "GO111MODULE": "",
    "GOENV": "off",
    "GOFLAGS": "-buildvcs=false",
    "GOPROXY": "off",
    "GOSUMDB": "off",
    "GOTELEMETRY": "off",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
_LAYER = "go-cache"
_DRIVER = Path(__file__).with_name("values.go").read_text(encoding="utf-8")
_LINE = '\ttext += "%d " + _agentgym_plain(func() any { return %s }) + "\\n"\n'


class Go(Language):
    """Runs Go code, with Go 1.18 or newer."""

    name = "go"
    title = "Go"
    endings = ("go",)
    programs = ("go",)
    package = "golang-go"
    needs = COMPILER_NEEDS

    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare the installed Go; see :meth:`Language.find`."""
        go = programs["go"]
        words = ("env", "GOROOT", "GOVERSION")
        said = installed.ask(go, *words, variables=_VARIABLES).splitlines()
        root, version = Path(said[0]).resolve(), said[1]
        root = installed.readable_tree(
            root, version, reachable=reachable, keep=("bin", "pkg", "src", "VERSION*")
        )
        variables = {**_VARIABLES, "GOROOT": str(root)}
        compiled = _standard_library(go, version, variables)
        return Toolchain(
            version=version,
            bin=root / "bin",
            trees=installed.outside_system(root, compiled),
            variables={
                **variables,
                "GOCACHE": f"{TEMPORARY}/{_LAYER}",
                "GOPATH": f"{TEMPORARY}/go",
            },
            layers={_LAYER: str(compiled)},
        )

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps that compile and run the package with the file ``path``."""
        target = _package(files, folder_of(path), tests=False)
        compile_it = ("go", "build", "-o", PROGRAM, *target)
        return Steps(chains=((compile_it, (PROGRAM, *args)),))

    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that run ``go test`` in each folder with selected tests."""
        found = (file for file in sorted(files) if file.endswith("_test.go"))
        by_folder: dict[str, list[str]] = {}
        for file in chosen(found, paths):
            ids = [f"{file}::{name}" for name in _TEST.findall(files[file])]
            wanted = [identity for identity in ids if identity in select]
            if wanted or not select:
                by_folder.setdefault(folder_of(file), []).extend(wanted or ids)
        chains, tests = [], []
        for folder, ids in by_folder.items():
            names = "|".join(identity.partition("::")[2] for identity in ids)
            selected = ("-run", f"^({names})$") if select else ()
            package = _package(files, folder, tests=True)
            chains.append((("go", "test", "-json", "-count=1", *selected, *package),))
            tests.append(tuple(ids) or (folder,))
        return Steps(chains=tuple(chains), tests=tuple(tests), reader="go")

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return files and steps that evaluate; see :meth:`Language.values`."""
        # Added test files evaluate the expressions; they replace all other test files.
        changed = {
            file: text for file, text in files.items() if not file.endswith("_test.go")
        }
        sources = {folder_of(file): file for _, file, _ in reversed(asked)}
        by_folder = asked_by_file(
            [(n, folder_of(file), text) for n, file, text in asked]
        )
        chains = []
        for number, (folder, lines) in enumerate(by_folder.items()):
            source = sources[folder]
            package = _PACKAGE.search(files.get(source, ""))
            if package is None:
                raise SourceError(f"{source} has no line `package NAME`.")
            written = "".join(_LINE % line for line in lines)
            name = "agentgym_values_test.go"
            name = free_name(changed, name if folder == "." else f"{folder}/{name}")
            driver = _DRIVER.replace("PACKAGE", package[1])
            changed[name] = driver.replace("\t// LINES\n", written)
            target = _package(changed, folder, tests=True)
            binary = f"{PROGRAM}{number}"
            chains.append(
                (
                    ("go", "test", "-c", "-vet=off", "-o", binary, *target),
                    (binary, "-test.run", "^TestAgentgymValues$"),
                )
            )
        return changed, Steps(chains=tuple(chains), values=True)


def _package(files: Iterable[str], folder: str, *, tests: bool) -> CommandLine:
    """Return the argument for ``go``: a folder with ``go.mod``, else Go files."""
    names = [file for file in sorted(files) if folder_of(file) == folder]
    if any(file.rpartition("/")[2] == "go.mod" for file in files):
        return (f"./{folder}",)
    return tuple(
        file
        for file in names
        if file.endswith(".go") and (tests or not file.endswith("_test.go"))
    )


def _standard_library(go: Path, version: str, variables: Mapping[str, str]) -> Path:
    """Return a Go build cache with common packages, made once for a version of Go."""

    def write(draft: Path) -> None:
        project = draft / "project"
        project.mkdir()
        build = {**variables, "GOCACHE": str(draft), "GOPATH": str(draft / "path")}
        known = installed.ask(go, "list", "std", variables=build).split()
        packages = sorted({*_STANDARD.split()} & {*known})
        imports = "".join(f'\t_ "{name}"\n' for name in packages)
        source = f"package main\n\nimport (\n{imports})\n\nfunc main() {{}}\n"
        test = 'package main\n\nimport "testing"\n\nfunc TestIt(*testing.T) {}\n'
        (project / "main.go").write_text(source)
        (project / "main_test.go").write_text(test)
        names = (str(project / "main.go"), str(project / "main_test.go"))
        installed.ask(go, "test", *names, variables=build)
        for folder in (project, draft / "path"):
            if folder.exists():
                remove_tree(str(folder))

    identity = json.dumps([version, variables, _STANDARD, str(go.resolve())])
    return published("go-cache", identity, write)
