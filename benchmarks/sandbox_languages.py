"""Tests in JavaScript, Go and Rust: in the sandbox, and by the bare command.

    python benchmarks/sandbox_languages.py [--runs 10]

Each round changes a number in the source, so that the program is compiled again while
the standard library's compiled form is kept, and then runs both ways, in random order.
A language whose toolchain is missing is left out, and named.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentgym.sandbox import RunTests, Sandbox, SandboxConfig
from agentgym.sandbox.languages import missing

SOURCES = {
    "javascript": {
        "cart.js": "exports.total = (all) => all.reduce((a, b) => a + b, NUMBER);\n",
        "cart.test.js": (
            "const test = require('node:test'), assert = require('node:assert');\n"
            "const { total } = require('./cart.js');\n"
            "test('empty', () => assert.equal(total([]), NUMBER));\n"
            "test('two', () => assert.equal(total([1, 2]), NUMBER + 3));\n"
        ),
    },
    "go": {
        "go.mod": "module cart\n\ngo 1.18\n",
        "cart.go": (
            "package cart\n\nfunc Total(prices []int) int {\n\tsum := NUMBER\n"
            "\tfor _, p := range prices {\n\t\tsum += p\n\t}\n\treturn sum\n}\n"
        ),
        "cart_test.go": (
            'package cart\n\nimport "testing"\n\n'
            "func TestEmpty(t *testing.T) {\n\tif Total(nil) != NUMBER {\n"
            "\t\tt.Fatal()\n\t}\n}\n"
            "func TestTwo(t *testing.T) {\n\tif Total([]int{1, 2}) != NUMBER+3 {\n"
            "\t\tt.Fatal()\n\t}\n}\n"
        ),
    },
    "rust": {
        "cart.rs": (
            "pub fn total(all: &[i64]) -> i64 { all.iter().sum::<i64>() + NUMBER }\n"
            "#[test]\nfn empty() { assert_eq!(total(&[]), NUMBER); }\n"
            "#[test]\nfn two() { assert_eq!(total(&[1, 2]), NUMBER + 3); }\n"
        ),
    },
}
BARE = {
    "javascript": ["node --test"],
    "go": ["go test ./..."],
    "rust": ["rustc --test cart.rs -o cart", "./cart"],
}


def with_number(language: str, number: int) -> dict[str, str]:
    """Return the files of a package that was not compiled before."""
    files = SOURCES[language].items()
    return {path: text.replace("NUMBER", str(number)) for path, text in files}


def bare(language: str, files: dict[str, str]) -> float:
    """Return the wall milliseconds of the bare command in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).write_text(text)
        started = time.perf_counter()
        for command in BARE[language]:
            words = command.split()
            subprocess.run(
                words, cwd=folder, check=True, capture_output=True, env=os.environ
            )
        return 1e3 * (time.perf_counter() - started)


def sandboxed(sandbox: Sandbox, language: str, files: dict[str, str]) -> float:
    """Return the wall milliseconds of the tests in the sandbox."""
    started = time.perf_counter()
    result = sandbox.run_sync(files, RunTests(language=language), timeout_s=60)
    took = 1e3 * (time.perf_counter() - started)
    if not result.ok:
        raise RuntimeError(f"the benchmark's own tests did not pass: {result}")
    return took


def measure(language: str, runs: int) -> None:
    """Write one row of the table."""
    ways: dict[str, list[float]] = {"sandbox": [], "bare": []}
    config = SandboxConfig(languages=(language,), cache_bytes=0)
    with Sandbox(config) as sandbox:
        for number in range(runs + 1):
            files = with_number(language, number)
            for way in random.sample(list(ways), len(ways)):
                if way == "bare":
                    took = bare(language, files)
                else:
                    took = sandboxed(sandbox, language, files)
                ways[way] += [took] if number else []  # the first one fills caches
    row = [f"{f(ways[way]):9.0f}" for way in ways for f in (statistics.median, min)]
    ratio = statistics.median(ways["sandbox"]) / statistics.median(ways["bare"])
    sys.stdout.write(f"{language:12}{''.join(row)}{ratio:9.2f}\n")
    sys.stdout.flush()


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    heads = ("p50", "min", "bare p50", "bare min", "ratio")
    sys.stdout.write(f"{'':12}{''.join(f'{head:>9}' for head in heads)}   (ms)\n")
    for language in SOURCES:
        if reason := missing(language):
            sys.stdout.write(f"{language:12} {reason}\n")
        else:
            measure(language, runs)


if __name__ == "__main__":
    main()
