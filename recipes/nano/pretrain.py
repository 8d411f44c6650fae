"""Pretrain the policy on token shards, resumable at any time.

    python -m recipes.nano.pretrain --shards /tmp/nano/shards --out /tmp/nano/run

Warm-up, a constant rate, then a linear decay over the last steps; an average of the
weights makes every checkpoint usable in between. Shards that appear while it runs
are taken up; ``--mix`` says which share of the tokens each kind has.
"""

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from numpy.typing import NDArray
from torch import Tensor

from recipes.nano.corpus import SUPERVISED
from recipes.nano.model import Nano, NanoConfig, exported
from recipes.nano.optimizer import Optimizer

MIX = {"general": 3, "support": 1, "coding": 3, "customer_support": 3}
Batch = tuple[Tensor, Tensor, Tensor]


def load_shard(path: Path) -> list[NDArray[np.uint16]]:
    """Return the conversations of a shard."""
    with np.load(path) as shard:
        return np.split(shard["tokens"], shard["offsets"][1:-1])


def collate(talks: list[NDArray[np.uint16]], multiple: int = 32) -> Batch:
    """Pad conversations on the right; return ids, supervised places, targets."""
    longest = max(map(len, talks))
    time_steps = -(-longest // multiple) * multiple
    grid = np.zeros((len(talks), time_steps), dtype=np.uint16)
    for row, talk in zip(grid, talks, strict=True):
        row[: len(talk)] = talk
    marked = (grid[:, 1:] >= SUPERVISED).nonzero()
    ids = (grid & (SUPERVISED - 1)).astype(np.int64)
    places = marked[0] * time_steps + marked[1]
    targets = ids[marked[0], marked[1] + 1]
    return torch.from_numpy(ids), torch.from_numpy(places), torch.from_numpy(targets)


def batches(
    folder: Path, mix: dict[str, float], tokens: int, seed: int
) -> Iterator[Batch]:
    """Yield batches of about ``tokens`` tokens for ever, of similar lengths each.

    The least used shards of each kind come first, so that no text is seen again
    before all others of its kind.
    """
    rng = random.Random(seed)
    used: Counter[str] = Counter()
    while True:
        pool: list[NDArray[np.uint16]] = []
        kinds = {k: sorted(folder.glob(f"{k}-[0-9]*[0-9].npz")) for k in mix}
        there = {k: share for k, share in mix.items() if kinds[k] and share > 0}
        for kind, share in there.items():
            goal, have = 60 * tokens * share / sum(there.values()), 0
            while have < goal:
                path = min(kinds[kind], key=lambda p: (used[p.name], rng.random()))
                used[path.name] += 1
                talks = load_shard(path)
                rng.shuffle(talks)
                half = talks[: len(talks) // 2] if kind != "general" else talks
                for talk in half:
                    if have >= goal:
                        break
                    pool.append(talk)
                    have += len(talk)
        pool.sort(key=lambda t: len(t) + rng.random() * 24)
        cuts: list[list[NDArray[np.uint16]]] = [[]]
        for talk in pool:
            if (len(cuts[-1]) + 1) * len(talk) > tokens:
                cuts.append([])
            cuts[-1].append(talk)
        rng.shuffle(cuts)
        yield from map(collate, filter(None, cuts))


def rate(step: int, warmup: int, steps: int, decay: int) -> float:
    """Return the share of the full learning rate at ``step``."""
    return min(1.0, (step + 1) / warmup, max(0.0, (steps - step) / decay))


class Trainer:
    """Model, optimizer and averaged weights, with checkpoints."""

    def __init__(self, config: NanoConfig, peak: float, compiled: bool) -> None:
        self.config = config
        self.model = Nano(config)
        self.optimizer = Optimizer(self.model, peak)
        self.average = {k: v.detach().clone() for k, v in self.model.named_parameters()}
        self.step = 0
        self.tokens = 0
        loss = self._loss
        self._run = torch.compile(loss, dynamic=True) if compiled else loss

    def _loss(self, weights: dict[str, Tensor], batch: Batch) -> Tensor:
        cast = {f"m.{k}": v.to(torch.bfloat16) for k, v in weights.items()}
        return torch.func.functional_call(_Loss(self.model), cast, batch)  # type: ignore[no-any-return]

    def train_step(self, batch: Batch, share: float) -> float:
        """Do one update at ``share`` of the full rate; return the loss."""
        weights = dict(self.model.named_parameters())
        loss = self._run(weights, batch)
        loss.backward()
        if dist.is_initialized():
            average_gradients(list(weights.values()))
        self.optimizer.step(share)
        self.step += 1
        self.tokens += batch[0].numel()
        keep = min(0.99, self.step / (self.step + 10))
        with torch.no_grad():
            for name, weight in weights.items():
                self.average[name].lerp_(weight, 1 - keep)
        return float(loss.detach())

    def save(self, path: Path) -> None:
        """Write everything that continuing needs, atomically."""
        state = {
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state,
            "step": self.step,
            "tokens": self.tokens,
        }
        torch.save(state, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").rename(path)

    def start_from(self, folder: Path) -> None:
        """Begin with the weights of an exported policy, at step 0."""
        weights = exported(self.config, folder)
        self.model.load_state_dict(weights)
        self.average = {k: v.clone() for k, v in weights.items()}

    def load(self, path: Path) -> None:
        """Continue from what :meth:`save` wrote."""
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        self.optimizer.state = state["optimizer"]
        self.step, self.tokens = state["step"], state["tokens"]


def average_gradients(weights: list[Tensor]) -> None:
    """Replace each gradient by its mean over the workers."""
    gradients = [w.grad for w in weights if w.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(
        gradients, flat.split([g.numel() for g in gradients]), strict=True
    ):
        gradient.copy_(mean.view_as(gradient))


class _Loss(torch.nn.Module):
    def __init__(self, model: Nano) -> None:
        super().__init__()
        self.m = model

    def forward(self, *batch: Tensor) -> Tensor:
        return self.m.loss(*batch)


def main() -> None:
    """Train until ``--steps``; continue if the folder holds a checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="exported policy to begin with")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--decay", type=int, default=600)
    parser.add_argument("--tokens", type=int, default=16384, help="per batch")
    parser.add_argument("--peak", type=float, default=4e-3)
    parser.add_argument("--mix", type=json.loads, default=MIX)
    parser.add_argument("--workers", type=int, default=2, help="one thread each")
    parser.add_argument("--every", type=int, default=100, help="steps per checkpoint")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    mp.spawn(work, (options,), nprocs=options.workers)


def work(rank: int, options: argparse.Namespace) -> None:
    """Train as one of ``options.workers`` processes that average their gradients."""
    workers = options.workers
    if workers > 1:
        rendezvous = f"file://{options.out.absolute()}/workers-{os.getppid()}"
        dist.init_process_group("gloo", rendezvous, rank=rank, world_size=workers)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(NanoConfig(), options.peak, compiled=True)
    last = options.out / "last.pt"
    if last.exists():
        trainer.load(last)
    elif options.base is not None:
        trainer.start_from(options.base)
    stream = batches(
        options.shards,
        options.mix,
        options.tokens // workers,
        trainer.step * workers + rank,
    )
    losses: list[float] = []
    began, tokens = time.perf_counter(), trainer.tokens
    while trainer.step < options.steps:
        share = rate(trainer.step, 100, options.steps, options.decay)
        losses.append(trainer.train_step(next(stream), share))
        if rank > 0:
            continue
        if trainer.step % 20 == 0:
            seconds = time.perf_counter() - began
            speed = workers * (trainer.tokens - tokens) / seconds
            print(
                f"{trainer.step} tokens {workers * trainer.tokens / 1e6:.2f}M "
                f"loss {sum(losses) / len(losses):.4f} {speed:.0f} tokens/s "
                f"rate {share:.2f}",
                flush=True,
            )
            began, tokens, losses = time.perf_counter(), trainer.tokens, []
        if trainer.step % options.every == 0 or trainer.step == options.steps:
            trainer.save(last)


if __name__ == "__main__":
    main()
