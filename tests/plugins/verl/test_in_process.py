"""verl's own actor learns what the local engine learns from recorded rollouts.

It needs verl, so a process of verl's interpreter, and rollouts of a real training.
"""

import json
import math
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from agentgym import Trainer
from agentgym.engines.base import TrainingBatch, scheduled_rate
from agentgym.engines.local.engine import LocalEngine
from agentgym.models.nano import nano_path
from agentgym.plugins.verl.rows import UpdateRow, rows_of
from agentgym.plugins.verl.settings import learning_rate, verl_settings
from tests.plugins.verl.running import (
    CRITIC_ON_CPU,
    ON_CPU,
    config,
    place_of_verl,
    run_in_verl,
    tensors,
    updates_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_two_updates_are_those_of_the_local_engine(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_of_verl()
    seen = updates_of(LocalEngine, monkeypatch)
    settings = config(tmp_path)
    local = settings.replaced(engine="local", gpu="none", verl={"settings": {}})
    agent = Trainer(local).train().trained
    trained = tensors(agent.path)
    assert [done.step for _, done in seen] == [1, 2]

    examples = TrainingBatch(
        [
            replace(each, trained=[replace(t, advantage=1.0) for t in each.trained])
            for each in seen[0][0].sequences
        ]
    )
    peak = learning_rate(settings)
    asked = {
        "settings": verl_settings(settings),
        "batches": [
            {
                "rows": rows_of(batch),
                "rate": scheduled_rate(peak, step, batch.spent),
                "temperature": settings.temperature,
            }
            for step, (batch, _) in enumerate(seen)
        ],
        "examples": rows_of(examples),
    }
    *done, imitated = updated(asked, tmp_path)
    for theirs, (_, ours) in zip(done, seen, strict=True):
        assert theirs["loss"] == pytest.approx(ours.loss, abs=1e-5)
        assert theirs["grad_norm"] == pytest.approx(ours.grad_norm, rel=1e-4)
        assert theirs["entropy"] == pytest.approx(ours.entropy, abs=1e-4)
        assert theirs["clip_fraction"] == pytest.approx(ours.clip_fraction, abs=1e-5)
        assert theirs["gap"] < 1e-4
        for name in ("learned", "entropies"):  # token by token, of the first rows
            expected = getattr(ours, name)[: len(theirs[name])]
            assert len(expected) > 1
            assert [*chain(*theirs[name])] == pytest.approx(
                [*chain(*expected)], abs=1e-4
            )
        assert [*map(len, theirs["moved"])] == [*map(len, theirs["learned"])]
        assert theirs["kl"] == pytest.approx(fmean(chain(*theirs["moved"])))

    moved, untrained = tensors(tmp_path / "verl"), tensors(nano_path())
    assert moved.keys() == trained.keys() == untrained.keys()
    for name, tensor in moved.items():
        assert not torch.equal(tensor, untrained[name].float()), name
        torch.testing.assert_close(tensor, trained[name].float(), atol=1e-6, rtol=0)

    after = local.replaced(model=str(agent.model_path))
    with closing(LocalEngine.create(after)) as engine:
        imitation = engine.imitation()
        ours = imitation.measure(examples)
        assert imitated["before"] == pytest.approx(ours, abs=1e-4)
        assert imitated["step"]["loss"] == pytest.approx(ours, abs=1e-4)
    assert imitated["after"] < imitated["before"]
    assert imitated["step"]["grad_norm"] > 0
    assert imitated["kept"] == 0, "AdamW begins anew after a warm start"
    assert imitated["moments"] == imitated["again"] > 0


def test_a_value_model_learns_and_the_untrained_model_is_kept_near(
    tmp_path: Path,
) -> None:
    """Six updates with ppo and a KL penalty, all with the same four rows."""
    settings = config(
        tmp_path,
        algorithm="ppo",
        kl_coefficient=0.1,
        lora_rank=4,
        verl={**ON_CPU, **CRITIC_ON_CPU},
    )
    rows: list[UpdateRow] = [
        {
            "ids": [*range(9, 19), first, first + 1],
            "start": 10,
            "trained": [(10, -6.0, reward), (11, -6.0, reward)],
        }
        for first, reward in ((20, 1.0), (30, 0.0), (40, 1.0), (50, 0.5))
    ]
    batch = {"rows": rows, "rate": 1e-2, "temperature": 1.0}
    asked = {
        "settings": verl_settings(settings),
        "batches": [batch] * 6,
        "examples": [],
    }

    done = updated(asked, tmp_path)

    losses = [each["value_loss"] for each in done]
    assert 0.0 < losses[-1] < losses[0]
    assert done[0]["reference_kl"] == pytest.approx(0.0, abs=1e-5)
    assert done[-1]["reference_kl"] > 1e-4
    assert all(each["grad_norm"] > 0.0 for each in done)


def test_dapo_counts_what_its_own_bounds_clip(tmp_path: Path) -> None:
    """Ratios of 0.75, 1.25 and 1.35 at bounds of 0.8 and 1.28; no weight changes."""
    settings = config(tmp_path, algorithm="dapo")
    row: UpdateRow = {"ids": [*range(9, 22)], "start": 10, "trained": []}

    def update(logprobs: list[float]) -> dict[str, Any]:
        trained = [(10 + n, logprob, 1.0) for n, logprob in enumerate(logprobs)]
        batch = {"rows": [{**row, "trained": trained}], "rate": 0.0, "temperature": 1.0}
        asked = {
            "settings": verl_settings(settings),
            "batches": [batch],
            "examples": [],
        }
        [done] = updated(asked, tmp_path)
        return done

    [learned] = update([-1.0] * 3)["learned"]
    ratios = (0.75, 1.25, 1.35)
    done = update([a - math.log(b) for a, b in zip(learned, ratios, strict=True)])
    assert done["clip_fraction"] == pytest.approx(2 / 3)


def updated(asked: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Let verl's actor do updates; return what each measured."""
    (folder / "asked.json").write_text(json.dumps(asked))
    script = Path(__file__).with_name("in_process.py")
    ran = run_in_verl(script, folder / "asked.json", folder / "verl")
    assert ran.returncode == 0, ran.stderr
    done: list[dict[str, Any]] = json.loads((folder / "verl" / "done.json").read_text())
    return done
