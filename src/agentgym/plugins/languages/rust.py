"""Run Rust programs and tests, and evaluate expressions, with rustc or cargo."""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

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
    folder_of,
)

_EDITION = re.compile(r'^edition\s*=\s*"(\d+)"', re.MULTILINE)
_ROOTS = ("lib.rs", "main.rs")
_PLAIN = Path(__file__).with_name("plain.rs").read_text(encoding="utf-8")
_MODULE = "agentgym_values"
_LINE = """        text += &format!("%d {}\\n", plain(|| %s));\n"""
_DRIVER = """#[cfg(test)]
mod %s {
    use super::*;
%s
    #[test]
    fn write_all() {
        let mut text = String::new();
%s        write(&text);
    }
}
"""
_COMPILE = ("rustc", "--color=never", "-Cdebuginfo=0")


class Rust(Language):
    """Runs Rust code, with Rust 1.63 or newer and the linker of a C compiler."""

    name = "rust"
    title = "Rust"
    endings = ("rs",)
    programs = ("rustc", "cargo", "cc")
    package = "rustc cargo gcc"
    needs = COMPILER_NEEDS

    def find(self, programs: Mapping[str, Path], *, reachable: bool) -> Toolchain:
        """Prepare the installed Rust; see :meth:`Language.find`."""
        rustc = programs["rustc"]
        root = Path(installed.ask(rustc, "--print", "sysroot")).resolve()
        version = installed.ask(rustc, "--version")
        variables = {
            "CARGO_HOME": f"{TEMPORARY}/cargo",
            "CARGO_TARGET_DIR": f"{TEMPORARY}/target",
            "CARGO_NET_OFFLINE": "true",
            "CARGO_INCREMENTAL": "0",
            "CARGO_TERM_COLOR": "never",
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "CARGO_PROFILE_TEST_DEBUG": "0",
        }
        keep = ("bin/rustc", "bin/cargo", "lib/*.so*", "lib/rustlib/*-*-*")
        root = installed.readable_tree(root, version, reachable=reachable, keep=keep)
        return Toolchain(
            version=version,
            bin=root / "bin",
            trees=installed.outside_system(root),
            variables=variables,
        )

    def program(self, files: Iterable[str], path: str, args: CommandLine) -> Steps:
        """Return the steps for ``path``, or ``cargo run`` with a ``Cargo.toml``."""
        files = frozenset(files)
        if "Cargo.toml" not in files:
            compile_it = (*_COMPILE, "--edition=2021", path, "-o", PROGRAM)
            return Steps(chains=((compile_it, (PROGRAM, *args)),))
        binary = posixpath.basename(path).removesuffix(".rs")
        is_named = folder_of(path) == "src/bin"
        named = ("--bin", binary) if is_named else ()
        return Steps(
            chains=((("cargo", "run", "--quiet", "--offline", *named, "--", *args),),)
        )

    def tests(
        self, files: Mapping[str, str], paths: CommandLine, select: CommandLine
    ) -> Steps:
        """Return the steps that run tests with ``cargo test`` or ``rustc --test``."""
        sources = (
            file
            for file in sorted(files)
            if file.endswith(".rs") and "#[test]" in files[file]
        )
        found = chosen(sources, paths, select)
        names = [identity.partition("::")[2] for identity in select]
        exact = ("--exact", *names) if names else ()
        if "Cargo.toml" in files:
            whole = ("cargo", "test", "--offline", "--no-fail-fast")
            targets = _targets(found) if paths or select else ("--tests",)
            return Steps(
                chains=(((*whole, *targets, "--", *exact),),),
                tests=(("Cargo.toml",),),
                reader="rust",
            )
        chains = []
        for number, file in enumerate(found):
            binary = f"{PROGRAM}{number}"
            compile_it = (*_COMPILE, "--test", "--edition=2021", file, "-o", binary)
            chains.append((compile_it, (binary, *exact)))
        tests = tuple((file,) for file in found)
        return Steps(chains=tuple(chains), tests=tests, reader="rust")

    def values(
        self, files: Mapping[str, str], asked: Sequence[tuple[int, str, str]]
    ) -> tuple[dict[str, str], Steps]:
        """Return added tests that evaluate; see :meth:`Language.values`."""
        changed = dict(files)
        if lost := {file for _, file, _ in asked} - files.keys():
            raise SourceError(f"The workspace has no file {min(lost)}.")
        edition = _EDITION.search(files.get("Cargo.toml", ""))
        language = f"--edition={edition[1] if edition else 2021}"
        chains = []
        for number, (file, lines) in enumerate(asked_by_file(asked).items()):
            written = "".join(_LINE % line for line in lines)
            changed[file] = f"{files[file]}\n{_DRIVER % (_MODULE, _PLAIN, written)}"
            binary = f"{PROGRAM}{number}"
            root = _root(files, file)
            inside = "" if root == file else _path(file)
            chains.append(
                (
                    (*_COMPILE, "--test", "-Awarnings", language, root, "-o", binary),
                    (
                        *(binary, f"{inside}{_MODULE}::write_all", "--exact"),
                        *("--nocapture", "--test-threads=1"),
                    ),
                )
            )
        return changed, Steps(chains=tuple(chains), values=True)


def _targets(files: Sequence[str]) -> CommandLine:
    """Return the options of ``cargo test`` that run the tests in these files."""
    options: list[str] = []
    for file in files:
        if folder_of(file) == "tests":
            options += ["--test", posixpath.basename(file).removesuffix(".rs")]
        elif "--lib" not in options and file.startswith("src/"):
            options += ["--bins"] if file.endswith("main.rs") else ["--lib"]
    return tuple(options)


def _root(files: Iterable[str], file: str) -> str:
    """Return the crate root (``lib.rs`` or ``main.rs``) of the module in ``file``."""
    files = frozenset(files)
    folder = posixpath.dirname(file)
    while True:
        for name in _ROOTS:
            root = posixpath.join(folder, name)
            if root == file or (root in files and name == "lib.rs"):
                return root
        if posixpath.join(folder, "main.rs") in files:
            return posixpath.join(folder, "main.rs")
        if not folder:
            return file
        folder = posixpath.dirname(folder)


def _path(file: str) -> str:
    """Return the path of a file's module in its crate, such as ``shop::cart::``."""
    parts = file.removesuffix(".rs").removesuffix("/mod").split("/")
    if "src" in parts:
        parts = parts[parts.index("src") + 1 :]
    return "::".join((*parts, ""))
