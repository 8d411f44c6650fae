"""Languages of programs in a sandbox, in addition to Python."""

from agentgym.errors import SandboxError
from agentgym.sandbox.languages.base import Language
from agentgym.sandbox.languages.go import Go
from agentgym.sandbox.languages.javascript import JavaScript
from agentgym.sandbox.languages.rust import Rust

LANGUAGES: dict[str, Language] = {
    language.name: language for language in (JavaScript(), Go(), Rust())
}
"""All supported languages except Python, by name."""
PYTHON = "python"


def language_named(name: str) -> Language:
    """Return the language ``name``, other than Python.

    Raises:
        SandboxError: The language is unknown.
    """
    if isinstance(name, str) and name in LANGUAGES:
        return LANGUAGES[name]
    known = ", ".join((PYTHON, *LANGUAGES))
    raise SandboxError(f"Unknown language {name!r}. Available: {known}.")


def language_of(path: str) -> str:
    """Return the name of a source file's language, which its extension decides.

    Raises:
        SandboxError: The extension is unknown.
    """
    ending = path.rpartition(".")[2]
    if ending == "py":
        return PYTHON
    for language in LANGUAGES.values():
        if ending in language.endings:
            return language.name
    endings = ["py", *(end for each in LANGUAGES.values() for end in each.endings)]
    raise SandboxError(
        f"{path!r} is not the path of a module or program, as 'shop/cart.py': its name "
        f"must end with one of .{', .'.join(endings)}."
    )
