"""docs/architecture.md: the files it names exist, and its search words find them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "agentgym"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
ROWS = re.findall(r"^\| [^|]+ \| `([^`|]+)` \| `([^`|]+)` \|$", TEXT, re.MULTILINE)
PICTURE = TEXT.split("## One rollout")[1].split("## Where do I find")[0]
STOPS = re.findall(r"[. ]{2,} (\w+/[\w/]+\.py)$", PICTURE, re.MULTILINE)


@pytest.mark.parametrize(("words", "file"), ROWS)
def test_the_words_of_a_question_find_its_file(words: str, file: str) -> None:
    assert words.lower() in (SOURCE / file).read_text().lower()


def test_each_stop_of_a_rollout_is_a_file() -> None:
    assert min(len(STOPS), len(ROWS)) > 20
    assert [stop for stop in STOPS if not (SOURCE / stop).is_file()] == []
