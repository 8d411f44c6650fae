"""Compile a chat template as transformers does, whose import takes over a second."""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _Generation(Extension):
    """Renders ``{% generation %}`` blocks, which mark the text of the model."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


@lru_cache
def compile_template(text: str) -> Template:
    """Return a chat template, ready to be rendered."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_raise, strftime_now=_now)
    return environment.from_string(text)


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
