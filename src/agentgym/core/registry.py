"""Registry: find classes by name, in the core, in plug-ins and in other packages.

Plug-ins of this package are in a table, those of other packages are entry points.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from agentgym.core.import_hints import (
    module_hint,
    name_hint,
    raised_at,
    reference_hint,
)
from agentgym.errors import NotFoundError, UsageError
from agentgym.install import installer
from agentgym.plugins import REGISTERED, points


@dataclass(frozen=True)
class Registry[T]:
    """A group of classes with a common base class, e.g. all frameworks.

    ``thing`` is the word for such a class in error messages. ``core`` has
    ``module:class`` by name.
    """

    base: type[T]
    thing: str
    core: Mapping[str, str]
    _: KW_ONLY
    group: str

    @property
    def built_in(self) -> Mapping[str, str]:
        """``module:class`` by name: the core's, then this package's plug-ins'."""
        return {**self.core, **REGISTERED.get(self.group, {})}

    def __iter__(self) -> Iterator[str]:
        """Yield all names, built-in names first."""
        # Entry points are read only when a caller asks for more than these.
        built_in = self.built_in
        yield from built_in
        yield from (p.name for p in points(self.group) if p.name not in built_in)

    def names(self) -> list[str]:
        """Return all names, built-in names first."""
        return list(self)

    def get(self, name: str) -> T:
        """Return a new instance of the class with this name, or raise NotFoundError."""
        if name in self.built_in:
            return self._made(name, resolve_name(self.built_in[name]))
        found = [point for point in points(self.group) if point.name == name]
        if not found:
            raise NotFoundError(self.thing, name, self.names())
        try:
            kind = found[0].load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"The {self.thing} {name!r} cannot be loaded from {found[0].value}: "
                f"{error}."
            ) from error
        return self._made(name, kind)

    def _made(self, name: str, kind: Any) -> T:
        what = f"The {self.thing} {name!r}"
        if not (isinstance(kind, type) and issubclass(kind, self.base)):
            raise UsageError(
                f"{what} is not a subclass of agentgym's {self.base.__name__}."
            )
        if missing := sorted(getattr(kind, "__abstractmethods__", ())):
            raise UsageError(f"{what} lacks {_contract_of(kind, missing[0])}")
        try:
            return kind()
        except (Exception, SystemExit) as error:  # another package's code
            raise UsageError(
                f"{what} cannot be made without arguments: {type(error).__name__}: "
                f"{error}."
            ) from error


def loaders(group: str) -> dict[str, Callable[[], Any]]:
    """Return functions that load the objects of a group of plug-ins, by name."""
    here = REGISTERED.get(group, {})
    found: dict[str, Callable[[], Any]] = {p.name: p.load for p in points(group)}
    return found | {name: partial(resolve_name, here[name]) for name in here}


def _contract_of(kind: type, method: str) -> str:
    import inspect

    function = inspect.getattr_static(kind, method)
    if isinstance(function, property):
        message = inspect.getdoc(function) or ""
        return f"the property {method}: {message.splitlines()[0]}"
    message = (inspect.getdoc(getattr(kind, method)) or "").splitlines()[0]
    return f"{method}{inspect.signature(getattr(kind, method))}: {message}"


def require_type[T](value: Any, expected: type[T], where: str) -> T:
    """Return the value of the method ``where``, or raise UsageError for its type."""
    if not isinstance(value, expected):
        article = "an" if expected.__name__[0] in "AEIOU" else "a"
        raise UsageError(
            f"{where} must return {article} {expected.__name__}, not a "
            f"{type(value).__name__}."
        )
    return value


def load_object(reference: str, *, option: str, folder: str = "") -> Any:
    """Import the object that a text such as ``"my_package.my_module:name"`` names.

    It is imported from ``folder``. If this is empty, it is imported from the working
    folder, as for ``python -m``. The module may also be the path of a file,
    ``"agents/my_module.py:name"``. ``option`` names the option or setting with this
    text, for error messages.

    Raises:
        UsageError: The reference is malformed, the object cannot be imported, or this
            process has already imported another file as a module of this name.
    """
    module_name, separator, name = reference.partition(":")
    here = folder or str(Path.cwd())
    if not separator or not module_name or not name:
        hint = reference_hint(reference, here)
        raise UsageError(f"{option} takes module:name, not {reference!r}.{hint}")
    if module_name.endswith(".py"):
        file = Path(os.path.abspath(Path(here, module_name)))
        if not file.is_file():
            raise UsageError(f"{option} {reference}: the file {file} does not exist.")
        module_name, here = module_of(file)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = _import(module_name)
        _require_from(module, here)
    except ImportError as error:
        missing = error.name or ""
        where, hint = raised_at(error), ""
        if not where and module_name.partition(".")[0] == missing.partition(".")[0]:
            hint = module_hint(module_name, here)
        elif isinstance(error, ModuleNotFoundError):
            hint = _install_hint(missing)
        raise UsageError(
            f"Cannot import {module_name!r}: {where}{str(error).rstrip('.')}.{hint}"
        ) from error
    if name not in vars(module):
        hint = name_hint(module_name, name, here, agent=option == "--agent")
        raise UsageError(f"Module {module_name!r} has no {name!r}.{hint}")
    return vars(module)[name]


def _install_hint(missing: str) -> str:
    root = missing.partition(".")[0]
    if root != missing and getattr(sys.modules.get(root), "__file__", None):
        return (
            f" The installed {root} is another version than the code was written for."
        )
    package = missing.replace(".", "-")
    return (
        " Install the package that has it in this environment, often by: "
        f"{installer()} {package}"
    )


def package_root(file: Path) -> Path:
    """Return the folder above a file's top package; without a package, its folder."""
    root = file.parent
    while (root / "__init__.py").exists():
        root = root.parent
    return root


def module_of(file: Path) -> tuple[str, str]:
    """Return a file's module name, or its path, and the folder to import it from."""
    root = package_root(file)
    return dotted_name(file, root) or str(file), str(root)


def dotted_name(file: Path, root: Path) -> str:
    """Return the name by which Python imports a file from ``root``, or ""."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts) if all(map(str.isidentifier, parts)) else ""


def _import(name: str) -> ModuleType:
    """Import a module by its name, or by the path of its file."""
    if not name.endswith(".py") or name in sys.modules:
        return import_module(name)
    spec = spec_from_file_location(name, name)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _require_from(module: ModuleType, folder: str) -> None:
    """Raise UsageError if a module comes from another file than that in ``folder``."""
    # A process keeps the first module that it imports under a name, which may belong to
    # another project.
    place = Path(folder, *module.__name__.split("."))
    for wanted in (place / "__init__.py", place.with_name(f"{place.name}.py")):
        if wanted.is_file():
            found = getattr(module, "__file__", None)
            if found and not wanted.samefile(found):
                raise UsageError(
                    f"{module.__name__} of {folder} cannot be imported: in this "
                    f"process it is already {found}. Use a process for each project, "
                    "or give one of the modules another name."
                )
            return
