"""Run JavaScript programs and tests, and evaluate expressions, with Node.js."""

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from agentgym.errors import SandboxError
from agentgym.plugins.languages import installed
from agentgym.sandbox.language import (
    CommandLine,
    Language,
    Steps,
    Toolchain,
    chosen,
    free_name,
)

_OLDEST = 18
_TEST = re.compile(r"(^test|[.\-_]test|^test-.+)\.[cm]?js$")
_HOOK = "_agentgym_evaluate"
_MODULE = "export const %s = (text) => eval(text);"
_COMMON = """{
  const names = Object.keys(module.exports).filter((name) => {
    try { return Boolean(new Function(`const ${name} = 0`)); } catch { return false; }
  });
  const bound = names.length ? `const { ${names} } = module.exports;` : '';
  module.exports.%s = (text) => eval(`{ ${bound} ${text} }`);
}"""
_DRIVER = """
const { writeSync } = require('node:fs');
const { pathToFileURL } = require('node:url');
const asked = %s;
%s
async function evaluated(file, expression) {
  try {
    const module = await import(pathToFileURL(file));
    const evaluate = module.%s ?? module.default?.%s;
    return plain(await evaluate(expression), 0);
  } catch (error) {
    return `raised ${error?.name}: ${JSON.stringify(String(error?.message ?? error))}`;
  }
}
(async () => {
  let text = '';
  for (const [number, file, expression] of asked)
    text += `${number} ${await evaluated(file, expression)}\\n`;
  writeSync(4, text);
  process.exit(0);
})();
"""
_PLAIN = """
const nothing = Object.prototype;
function plain(value, depth) {
  if (depth > 50) throw new TypeError('nested too deeply');
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${value} is not a JSON value`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value))
    return `[${Array.from(value, (item) => plain(item, depth + 1))}]`;
  const kind = typeof value === 'object' ? Object.getPrototypeOf(value) : undefined;
  if (kind !== null && kind !== nothing) {
    const name = value?.constructor?.name ?? typeof value;
    throw new TypeError(`a ${name} is not a JSON value`);
  }
  const pair = ([key, item]) => `${JSON.stringify(key)}:${plain(item, depth + 1)}`;
  return `{${Object.entries(value).map(pair)}}`;
}
"""


class JavaScript(Language):
    """Runs JavaScript code, with Node.js 18 or newer."""

    name = "javascript"
    title = "JavaScript (Node.js)"
    endings = ("js", "mjs", "cjs")
    programs = ("node",)
    package = "nodejs"
    needs: ClassVar[Mapping[str, int]] = {"memory_mb": 2048, "processes": 64}
    forks = False

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
        found = [file for file in sorted(files) if _is_test(file) or file in paths]
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
            hook = _COMMON if _is_common(files, file) else _MODULE
            changed[file] = f"{files[file]}\n;{hook % _HOOK}\n"
        name = free_name(files, "_asked.cjs")
        changed[name] = _DRIVER % (
            json.dumps([[number, file, f"({text})"] for number, file, text in asked]),
            _PLAIN,
            _HOOK,
            _HOOK,
        )
        return changed, Steps(chains=((("node", name),),), values=True)


def _is_test(file: str) -> bool:
    """Return whether ``node --test`` would run a file."""
    parts = file.split("/")
    if "node_modules" in parts:
        return False
    is_source = parts[-1].endswith((".js", ".mjs", ".cjs"))
    return is_source and ("test" in parts[:-1] or _TEST.search(parts[-1]) is not None)


def _is_common(files: Mapping[str, str], file: str) -> bool:
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
