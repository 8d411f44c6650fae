"""The training recipe: it learns, resumes, and exports what it trained."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from recipes.nano.corpus import SUPERVISED
from recipes.nano.make_tokenizer import pruned
from recipes.nano.model import Nano, NanoConfig, export
from recipes.nano.optimizer import orthogonal
from recipes.nano.pretrain import Trainer, batches, collate
from recipes.nano.tokenizer import train
from tests.some import some

SMALL = NanoConfig(vocab_size=64, width=32, layers=2, heads=2, head_dim=16, hidden=48)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tiny tensors only lose by threads."""
    torch.set_num_threads(1)


def write_shard(path: Path, seed: int, count: int = 64) -> None:
    """Write talks that a small model can learn: a word is repeated after a mark."""
    rng = random.Random(seed)
    talks = []
    for _ in range(count):
        word = [rng.randint(8, 60) for _ in range(4)]
        talks.append(np.array([*word, 2, *(w | SUPERVISED for w in word)], np.uint16))
    offsets = np.cumsum([0, *map(len, talks)])
    np.savez(path, tokens=np.concatenate(talks), offsets=offsets)


@pytest.mark.slow
def test_training_reduces_the_loss(tmp_path: Path) -> None:
    write_shard(tmp_path / "general-0000.npz", 1)
    torch.manual_seed(0)
    trainer = Trainer(SMALL, peak=1e-2, compiled=False)
    stream = batches(tmp_path, {"general": 1.0}, 256, seed=0)
    losses = [trainer.train_step(next(stream), 1.0) for _ in range(50)]
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]


def test_a_checkpoint_continues_exactly(tmp_path: Path) -> None:
    write_shard(tmp_path / "general-0000.npz", 1)
    stream = batches(tmp_path, {"general": 1.0}, 256, seed=0)
    steps = [next(stream) for _ in range(4)]
    torch.manual_seed(0)
    whole = Trainer(SMALL, peak=1e-3, compiled=False)
    for batch in steps[:2]:
        whole.train_step(batch, 1.0)
    whole.save(tmp_path / "last.pt")
    resumed = Trainer(SMALL, peak=1e-3, compiled=False)
    resumed.load(tmp_path / "last.pt")
    for batch in some(steps[2:]):
        assert whole.train_step(batch, 1.0) == resumed.train_step(batch, 1.0)


def test_only_marked_tokens_are_targets() -> None:
    talks = [
        np.array([5, 6, 7 | SUPERVISED, 8], np.uint16),
        np.array([5, 9 | SUPERVISED], np.uint16),
    ]
    ids, places, targets = collate(talks, multiple=4)
    assert ids.tolist() == [[5, 6, 7, 8], [5, 9, 0, 0]]
    assert places.tolist() == [1, 4]
    assert targets.tolist() == [7, 9]


def test_muon_updates_are_orthogonal() -> None:
    update = orthogonal(torch.randn(2, 24, 16))
    singular = torch.linalg.svdvals(update)
    assert singular.min() > 0.4
    assert singular.max() < 1.4


def test_exported_logits_are_the_same(tmp_path: Path) -> None:
    """What transformers computes from the export is what was trained."""
    torch.manual_seed(0)
    model = Nano(SMALL)
    weights = {k: v.detach().bfloat16().float() for k, v in model.named_parameters()}
    model.load_state_dict({**model.state_dict(), **weights})
    export(SMALL, weights, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 64, (3, 40))
    with torch.inference_mode():
        expected = theirs(ids).logits
        ours = model(ids) @ model.embed.weight.T
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_tokenizer_keeps_names_alike_in_a_sentence_and_a_path() -> None:
    tokenizer = train(["open the file zorb/kelp.py now", "zorb kelp"] * 50, 400)
    inside = tokenizer.tokenize("read zorb_kelp/zorb.py")
    alone = tokenizer.tokenize('"zorb_kelp/zorb.py"')
    assert inside[-len(alone[1:-1]) :] == alone[1:-1]
    digits = tokenizer.tokenize("AB 4071")
    assert digits == ["A", "B", "Ġ", "4", "0", "7", "1"]


def test_pruning_drops_only_tokens_that_were_never_trained() -> None:
    model = {
        "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "abc": 4, "bc": 5},
        "merges": [["a", "b"], ["b", "c"], ["ab", "c"]],
    }
    counts = np.array([9, 9, 0, 9, 9, 0])
    kept = pruned(model, counts, least=5)
    assert kept == [["a", "b"], ["ab", "c"]], "an unused step to a used token stays"


@pytest.mark.slow
def test_training_starts_from_an_exported_policy(tmp_path: Path) -> None:
    write_shard(tmp_path / "general-0000.npz", 1)
    stream = batches(tmp_path, {"general": 1.0}, 256, seed=0)
    first = Trainer(SMALL, peak=1e-2, compiled=False)
    for _ in range(20):
        first.train_step(next(stream), 1.0)
    export(SMALL, first.average, tmp_path / "policy")
    second = Trainer(SMALL, peak=0.0, compiled=False)
    second.start_from(tmp_path / "policy")
    assert second.step == 0
    for name, weight in second.average.items():
        assert torch.equal(weight, first.average[name].bfloat16().float()), name
