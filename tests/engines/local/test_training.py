"""A run of a model that knows nothing ends as it should."""

from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import NO_VARIANCE
from agentgym.errors import TrainingFailedError
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from tests.engines.conftest import make_model, make_tokenizer


@pytest.mark.slow
def test_a_model_whose_attempts_all_earn_the_same_is_not_trained(
    tmp_path: Path,
) -> None:
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = 2048
    tokenizer.save_pretrained(tmp_path / "model")
    model = make_model(len(tokenizer), max_position_embeddings=2048)
    model.save_pretrained(tmp_path / "model")
    config = TrainingConfig.create(
        scenario="coding",
        framework="native",
        model=str(tmp_path / "model"),
        gpu="none",
        lora_rank=4,
        episodes=16,
        group_size=4,
        tasks_per_step=2,
        max_tokens=16,
        failure_cost=0.0,  # a random model happens to begin calls that nobody can read
        test_tasks=2,
        eval_tasks=2,
        eval_samples=1,
        workers=1,
        tracker="none",
        yes=True,
        output=tmp_path / "runs",
        name="run",
    )

    trainer = Trainer(config)
    assert "GiB: weights 0.00, a merged copy to sample from" in trainer.plan().memory
    with pytest.raises(
        TrainingFailedError, match=r"None of \d+ model calls was trained"
    ):
        trainer.train()

    run = RunFolder(tmp_path / "runs" / "run")
    assert run.record()["status"] == "failed"
    found = run.load_state()
    assert found is not None
    ledger = found[0].ledger
    assert ledger.calls >= 16  # a call that cannot be read is answered with an error
    assert (ledger.trained, ledger.masked) == (0, {NO_VARIANCE: ledger.calls})
    assert ledger.adds_up
    assert not (tmp_path / "runs" / "run" / "agent").exists()
