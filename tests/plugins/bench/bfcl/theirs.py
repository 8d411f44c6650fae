"""Run by a test in a process of its own: what the benchmark's package itself says.

Arguments: the folder that holds ``bfcl_eval``. Standard input has one answer a line,
``[category, id, [[name, arguments as text], …]]``; of a conversation, such a list of
calls for each turn. Standard output gets one JSON object: the verdicts, in order, and
every entry's tools. Packages that it imports and that are not installed, mostly clients
of providers, are stood in for by mocks.
"""

import json
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock


class _Mocks(MetaPathFinder, Loader):
    """Gives a mock for each module that nothing else finds."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        return None if top == "bfcl_eval" else ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        made = MagicMock(name=spec.name)
        made.__all__ = []
        return made

    def exec_module(self, module: ModuleType) -> None: ...


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    sys.meta_path.append(_Mocks())
    sys.modules["pandas"] = MagicMock()  # which would ask mocks for their versions
    models = ModuleType("bfcl_eval.constants.model_config")
    named = SimpleNamespace(underscore_to_dot=True)
    vars(models)["MODEL_CONFIG_MAPPING"] = {"any": named}
    sys.modules[models.__name__] = models
    from bfcl_eval import utils
    from bfcl_eval.constants.enums import Language, ModelStyle, ReturnFormat
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI
    from bfcl_eval.eval_checker import eval_runner
    from bfcl_eval.model_handler.utils import convert_to_function_call, convert_to_tool

    class Handler:
        """Reads calls as the package's handler of OpenAI's API does."""

        def decode_ast(self, result: Any, *_: Any, **__: Any) -> list[Any]:
            return [{name: json.loads(text)} for name, text in result]

        def decode_execute(self, result: Any, **_: Any) -> list[str]:
            return convert_to_function_call([{name: text} for name, text in result])

    entries: dict[str, dict[str, Any]] = {}
    answers: dict[str, Any] = {}
    told: dict[str, Any] = {}
    verdicts = []
    for line in map(json.loads, sys.stdin):
        category, entry_id, calls = line
        if entry_id not in entries:
            plain = utils.load_dataset_entry(
                category, include_language_specific_hint=False
            )
            entries |= {entry["id"]: entry for entry in plain}
            hinted = utils.load_dataset_entry(category)
            told |= {
                entry["id"]: convert_to_tool(
                    entry["function"], GORILLA_TO_OPENAPI, ModelStyle.OPENAI_COMPLETIONS
                )
                for entry in hinted
            }
            if "relevance" not in category:
                known = utils.load_ground_truth_entry(category)
                answers |= {each["id"]: each["ground_truth"] for each in known}
        entry = entries[entry_id]
        common = (Handler(), entry_id, calls)
        try:
            if "multi_turn" in category:
                found = eval_runner._evaluate_single_multi_turn_entry(
                    Handler(),
                    entry_id,
                    [[turn] if turn else [] for turn in calls],
                    answers[entry_id],
                    dict(entry),
                    f"any{len(verdicts)}",  # programs are kept by this name
                    category,
                )
            elif "relevance" in category:
                found = eval_runner._evaluate_single_relevance_entry(
                    *common, entry, "any", category
                )
            else:
                language = Language.PYTHON
                if category.endswith(("java", "javascript")):
                    language = Language(category.rpartition("_")[2])
                found = eval_runner._evaluate_single_ast_entry(
                    *common,
                    answers[entry_id],
                    entry,
                    "any",
                    category,
                    language,
                    ReturnFormat.JSON,
                )
            verdicts.append(bool(found["valid"]))
        except Exception as error:  # noqa: BLE001 - the checker itself fails
            verdicts.append(f"{type(error).__name__}: {error}")
    json.dump({"verdicts": verdicts, "tools": told}, sys.stdout)


if __name__ == "__main__":
    main()
