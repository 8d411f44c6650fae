"""Run the tests of MultiPL-E: the answer's code and the tests are one program."""

from collections.abc import Iterator
from dataclasses import dataclass

from agentgym.errors import UsageError
from agentgym.sandbox import Argv, LazySandbox
from agentgym.sandbox.commands import Command, Program
from agentgym.scenarios.benchmarks.problems import (
    BenchmarkProblem,
    Judge,
    checked,
    field,
    read_lines,
    texts,
)

SOURCE = (
    "the data set nuprl/MultiPL-E on Hugging Face (humaneval-js, humaneval-go, "
    "humaneval-rs, mbpp-js, mbpp-go, mbpp-rs), as JSON Lines"
)
LANGUAGES = {"js": "javascript", "go": "go", "go_test.go": "go", "rs": "rust"}
_TITLES = {"javascript": "JavaScript", "go": "Go", "rust": "Rust"}
_REQUEST = (
    "Complete this {title} function. Answer with the whole code, beginning with the "
    "given lines, in one code block.\n\n```{name}\n{prompt}```"
)
_GO_S, _OTHER_S = 30.0, 15.0
_COMMANDS: dict[str, tuple[str, Command]] = {
    "javascript": ("main.js", Program("main.js")),
    "rust": ("main.rs", Program("main.rs")),
    "go": ("main_test.go", Argv(("go", "test", "main_test.go"))),
}


@dataclass(frozen=True)
class Joined(Judge):
    """Accepts code if the program of this code and its tests succeeds.

    Attributes:
        language: Programming language: ``javascript``, ``go`` or ``rust``.
        tests: Code of the tests, which is put after the answer's code.
        stops: Texts at which the code is cut, if it starts with ``prefix``. The code
            after such a text does not belong to the function.
        prefix: Start of the code, which the model has to complete.
    """

    language: str
    tests: str
    stops: tuple[str, ...]
    prefix: str

    def accepts(self, sandbox: LazySandbox, code: str) -> bool:
        """Return whether the program succeeds within 15 seconds (Go: 30 seconds)."""
        if code.startswith(self.prefix):
            completion = code[len(self.prefix) :]
            for stop in self.stops:
                completion = completion.partition(stop)[0]
            code = self.prefix + completion
        name, command = _COMMANDS[self.language]
        limit_s = _GO_S if self.language == "go" else _OTHER_S
        result = sandbox.run_sync(
            {name: f"{code}\n{self.tests}"}, command, timeout_s=limit_s
        )
        return checked(result).ok


def read_multipl_e(data: str) -> Iterator[BenchmarkProblem]:
    """Yield the problems of a file of MultiPL-E.

    Raises:
        UsageError: The file has another format or language.
    """
    for row in read_lines(data, "MultiPL-E", SOURCE):
        prompt, tests, short, name = (
            field(row, key, str, SOURCE)
            for key in ("prompt", "tests", "language", "name")
        )
        if short not in LANGUAGES:
            raise UsageError(
                f"{row['']}: programs in {short!r} are not run; those in js, go and rs "
                "are."
            )
        language = LANGUAGES[short]
        request = _REQUEST.format(title=_TITLES[language], name=language, prompt=prompt)
        stops = tuple(texts(row, "stop_tokens", SOURCE))
        yield BenchmarkProblem(
            id=name,
            family=f"multipl_e_{language}",
            instruction=request,
            prefix=prompt,
            entry_point="_".join(name.split("_")[2:]) or name,
            judge=Joined(language, tests, stops, prompt),
        )
