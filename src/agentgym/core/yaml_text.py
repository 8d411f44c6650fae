"""Parse YAML texts safely, with booleans and numbers as in YAML 1.2."""

import re
from typing import Any

import yaml

_MOST_CHARACTERS = 1 << 20
_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_NUMBER = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):  # in YAML 1.1, `yes` is True and 1e-4 is a text
    pass


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != _BOOL]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, _TRUE, list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """Parse a YAML text; raise ValueError if it cannot be read."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(
            f"it has {len(text):,} characters, and {_MOST_CHARACTERS:,} are the most"
        )
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except yaml.YAMLError as error:
        raise ValueError(_in_a_line(error)) from None


def _in_a_line(error: yaml.YAMLError) -> str:
    """Return a sentence that says where a text is not YAML, and why."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    is_tab = "'\\t'" in str(error.problem)
    said = "a tab indents it; YAML wants spaces" if is_tab else error.problem
    return f"line {error.problem_mark.line + 1}: {said}"
