"""Make a failing bare ``assert`` say what the two sides were."""

import ast
import reprlib
import sys
import types

_LEFT, _RIGHT, _EXPLAIN = "@left", "@right", "@explain"


class _Explainer(ast.NodeTransformer):
    """Rewrites ``assert a == b`` to keep both values for the message."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        """Rewrite one assert statement; its semantics stay the same."""
        source = ast.unparse(node.test)
        arguments: list[ast.expr] = [
            ast.Constant(source),
            node.msg or ast.Constant(None),
        ]
        statements: list[ast.stmt] = []
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            for name, value in ((_LEFT, test.left), (_RIGHT, test.comparators[0])):
                statements.append(ast.Assign([ast.Name(name, ast.Store())], value))
                arguments.append(ast.Name(name, ast.Load()))
            left, right = arguments[-2:]
            test = ast.Compare(left, test.ops, [right])
        message = ast.Call(ast.Name(_EXPLAIN, ast.Load()), arguments, [])
        statements.append(ast.Assert(test, message))
        for statement in statements:
            ast.copy_location(statement, node)
            ast.fix_missing_locations(statement)
        return statements


def _explain(source: str, message: object, *sides: object) -> str:
    """Return the message of a failed assert."""
    text = f"assert {source}"
    if sides:
        left, right = (_SHORT.repr(side) for side in sides)
        text += f" (left: {left}, right: {right})"
    return text if message is None else f"{message}\n{text}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 20
_SHORT.maxlevel = 4


def load(path: str, name: str) -> types.ModuleType:
    """Import a test file with rewritten asserts.

    Args:
        path: The file, relative to the working directory.
        name: Name of the module.
    """
    with open(path, "rb") as source:
        tree = ast.parse(source.read(), path)
    code = compile(_Explainer().visit(tree), path, "exec", dont_inherit=True)
    module = types.ModuleType(name)
    module.__dict__.update({"__file__": path, _EXPLAIN: _explain})
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module
