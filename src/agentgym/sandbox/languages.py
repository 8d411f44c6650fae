"""Languages of programs in a sandbox: all of them, and their toolchains."""

import functools
import shutil
import subprocess
from pathlib import Path

from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.plugins import REGISTERED, registered
from agentgym.sandbox.guest.box import MountedBox
from agentgym.sandbox.language import Language, Toolchain

# All supported languages except Python, by name.
LANGUAGES: dict[str, Language] = {
    name: registered("agentgym.languages", name)()
    for name in REGISTERED["agentgym.languages"]
}
PYTHON = "python"


def language_named(name: str) -> Language:
    """Return the language ``name``, other than Python."""
    if isinstance(name, str) and name in LANGUAGES:
        return LANGUAGES[name]
    known = ", ".join((PYTHON, *LANGUAGES))
    raise SandboxError(f"Unknown language {name!r}. Available: {known}.")


def language_of(path: str) -> str:
    """Return the name of a source file's language, which its extension decides."""
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


@functools.cache
def toolchain(name: str, *, reachable: bool = True) -> Toolchain:
    """Find a language's installed toolchain, and prepare it for executions. Cached.

    The first call on a machine may take up to a minute: it may compile a standard
    library, or copy a toolchain that the user id of executions cannot read. For
    ``reachable`` see :meth:`Language.find`.

    Raises:
        SandboxUnavailableError: The toolchain is not installed or does not work; the
            message names its Debian package.
    """
    language = LANGUAGES[name]
    programs: dict[str, Path] = {}
    for program in language.programs:
        found = shutil.which(program)
        if found is None:
            raise SandboxUnavailableError(
                f"{language.title} is not installed: `{program}` is not on the search "
                f"path. Install it (Debian, Ubuntu: apt-get install "
                f"{language.package})."
            )
        programs[program] = Path(found)
    try:
        found_here = language.find(programs, reachable=reachable)
    except (SandboxError, OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailableError(
            f"{language.title} in {programs[language.programs[0]]} cannot be used: "
            f"{error} Install another version (Debian, Ubuntu: apt-get install "
            f"{language.package})."
        ) from error
    _check_visible(language, found_here)
    return found_here


def missing(name: str) -> str:
    """Return why the toolchain of the language ``name`` is unusable, or ""."""
    try:
        toolchain(name)
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def _check_visible(language: Language, found: Toolchain) -> None:
    for tree in found.trees:
        for place in map(Path, MountedBox.TARGETS):
            if tree.is_relative_to(place):
                raise SandboxUnavailableError(
                    f"{language.title} in {tree} is below {place}, where each "
                    "execution gets an empty folder: install it elsewhere."
                )
