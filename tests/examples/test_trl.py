"""examples/trl, run as it stands in TRL's own trainer."""

import re
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "trl"


@pytest.mark.slow  # imports TRL and LangChain, and trains two steps
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_two_steps_train_on_what_the_model_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trl = pytest.importorskip("trl")
    from tests.plugins.trl.watched import Watched

    assert trl.GRPOTrainer  # imported by its first use
    monkeypatch.setattr(trl, "GRPOTrainer", Watched)
    monkeypatch.setattr("sys.argv", ["train.py", "2"])
    runpy.run_path(str(FOLDER / "train.py"), run_name="__main__")

    Watched.made.check(steps=2, most=1e-3)
    said = capsys.readouterr().out
    assert re.search(r"mean reward, step by step: [-\d.]+ [-\d.]+\n", said)
    counted = re.search(r"(\d+) of (\d+) model calls were trained", said)
    assert counted
    assert int(counted[1]) > 16
