"""A model's folder that others made: damage is named, whatever a header says."""

import shutil
import struct
from pathlib import Path

import pytest

from agentgym.errors import ModelError
from agentgym.models.folder import describe_model, held_rank
from agentgym.models.nano import nano_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"[" * 200_000, "nested too deep"),
        (b'{"t": 1}', "cannot be read"),
    ],
)
def test_a_header_that_none_can_have_is_named(
    tmp_path: Path, header: bytes, problem: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(nano_path(), folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ModelError, match=problem):
        describe_model(str(folder), 0)


def test_settings_that_are_nested_too_deep_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(nano_path(), folder)
    (folder / "adapter_config.json").write_text("[" * 200_000)
    with pytest.raises(ModelError, match="nested too deep"):
        held_rank(folder)
