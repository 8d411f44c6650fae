"""Pools of wording are read from one file per split."""

from pathlib import Path

import pytest

from agentgym.core.task import Split
from agentgym.packs.kit.phrases import read_pools


def write(folder: Path, split: Split, text: str) -> None:
    (folder / f"{split.value}.txt").write_text(text)


def test_sections_hold_their_lines_split_by_split(tmp_path: Path) -> None:
    for split in Split:
        write(
            tmp_path, split, f"# note\n[ask]\n[a|b] {split.value}\n\nc: d\n[end]\nbye\n"
        )
    (tmp_path / "train_more.txt").write_text("[end]\nsee you\n")
    pools = read_pools(tmp_path)
    assert list(pools) == ["ask", "end"]
    assert pools["ask"][Split.TEST] == ("[a|b] test", "c: d")
    assert pools["end"][Split.TRAIN] == ("bye", "see you")


def test_a_section_that_one_split_lacks_is_an_error(tmp_path: Path) -> None:
    for split in Split:
        write(tmp_path, split, "[ask]\na\n")
    write(tmp_path, Split.TEST, "[asks]\na\n")
    with pytest.raises(ValueError, match="asks"):
        read_pools(tmp_path)
