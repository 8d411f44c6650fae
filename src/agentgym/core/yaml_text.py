"""Parse YAML texts safely, with booleans and numbers as in YAML 1.2."""

import re
from typing import Any

import yaml

_MOST_CHARACTERS = 1 << 20
_MOST_VALUES = 100_000
"""Maximum number of values in a YAML text, with aliases expanded."""
_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_NUMBER = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """A YAML loader for plain data that reads booleans and numbers as in YAML 1.2.

    PyYAML follows YAML 1.1, where the key ``yes`` means ``True`` and ``1e-4`` is text.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != _BOOL]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, _TRUE, list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """Parse a YAML text.

    A few lines of nested aliases (``b: [*a, *a]``) can expand to more values than
    memory holds. Such a text is refused before any value is built.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(
            f"it has {len(text):,} characters, and {_MOST_CHARACTERS:,} are the most"
        )
    try:
        if (root := yaml.compose(text, _Loader)) is not None:
            _count(root, {})
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values in a node, itself included, with aliases expanded."""
    counted = known.get(id(node))
    if counted == 0:
        raise ValueError("an alias in it refers to a value that contains it")
    if counted is not None:
        return counted
    known[id(node)] = 0
    total = 1
    if isinstance(node, yaml.SequenceNode):
        total += sum(_count(each, known) for each in node.value)
    elif isinstance(node, yaml.MappingNode):
        total += sum(_count(part, known) for pair in node.value for part in pair)
    if total > _MOST_VALUES:
        raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")
    known[id(node)] = total
    return total
