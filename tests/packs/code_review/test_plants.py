"""Every plant is found by a linter, at its line, and as the kind that it is."""

from random import Random

import pytest

from agentgym.core.task import Split
from agentgym.packs.code_review.plants import PLANTS, Plant, of_kind, plant_all
from agentgym.packs.code_review.scenario import is_worth_a_line
from agentgym.packs.kit.code_rewards import find_problems

MODULE = 'LIMIT = 5\n\n\ndef area_lamp(width, height):\n    """Return it."""\n'
MODULE += "    return width * height\n"
SPLITS = (Split.TRAIN, Split.VALIDATION, Split.TEST)


def planted(plant: Plant, seed: int) -> tuple[str, tuple[tuple[int, str], ...]]:
    made = plant_all(
        Random(seed),
        MODULE,
        [plant],
        names=["cup", "jar"],
        parameters=[("price", "fee")],
    )
    return made.source, made.defects


@pytest.mark.parametrize(
    "plant", PLANTS, ids=lambda p: f"{p.split}-{p.body or p.imports}"
)
def test_a_plant_is_the_only_finding_in_its_module(plant: Plant) -> None:
    for seed in range(1):
        source, defects = planted(plant, seed)
        found = find_problems({"shop/lamp.py": source})
        shown = [f for f in found if is_worth_a_line(f)]
        reported = [(f.line, f.kind) for f in shown if f.kind != "style"]
        assert reported == list(defects), shown
        if plant.kind == "style":
            assert shown
        else:
            assert len(defects) == 1


def test_the_splits_share_no_plant_and_each_has_all_kinds() -> None:
    seen: set[tuple[object, object]] = set()
    for split in SPLITS:
        texts = {
            (plant.imports, plant.body) for plant in PLANTS if plant.split is split
        }
        assert not texts & seen
        seen |= texts
        for kind in ("bug", "security", "style"):
            assert len(of_kind(kind, split)) >= 2  # type: ignore[arg-type]
    assert of_kind("bug", Split.OUT_OF_VOCABULARY) == of_kind("bug", Split.TEST)
