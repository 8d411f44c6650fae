"""The local engine on models of Qwen2.5's shapes with random weights.

    python benchmarks/engine.py --architecture 1.5b [--episodes 64] [--gpu auto]

Rates do not depend on what weights hold, so nothing is downloaded; but a policy that
knows nothing ends no response early, and drafts do not help it. A CPU's figures are per
CPU-second, a GPU's per second.
"""

import json
import resource
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

SHAPES = {
    "tiny": (256, 1024, 4, 4, 2, 8192),
    "0.5b": (896, 4864, 24, 14, 2, 151_936),
    "1.5b": (1536, 8960, 28, 12, 2, 151_936),
    "3b": (2048, 11_008, 36, 16, 2, 151_936),
    "7b": (3584, 18_944, 28, 28, 4, 152_064),
}
"""Widths of layer and perceptron, layers, heads, key heads, vocabulary."""
UNTIED = ("7b",)
"""Those whose last layer has weights of its own."""
EPISODES = 10_000


class Measured(NamedTuple):
    """Of one engine: tokens and seconds of sampling, seconds of an update."""

    operations: int
    tokens: int
    sampling: float
    update: float
    held: float


def settings(architecture: str) -> dict[str, Any]:
    """Return what ``config.json`` says of a model of that shape."""
    hidden, inner, layers, heads, keys, vocabulary = SHAPES[architecture]
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": architecture not in UNTIED,
    }


def write(architecture: str, folder: Path) -> None:
    """Write a random model with the shipped policy's tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from agentgym.models.nano import nano_path

    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.model_max_length = 32_768
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        **settings(architecture),
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id,
        dtype="bfloat16",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)


def count_operations(engine: Any, rows: int) -> int:
    """Return the operations of a decoding step but views: on a GPU a kernel each."""
    from torch.utils._python_dispatch import TorchDispatchMode

    views = ("view", "t.", "transpose", "slice", "select", "unsqueeze", "alias")

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.count += not any(view in str(func) for view in views)
            return func(*args, **(kwargs or {}))

    forward = engine.policy.decoder._forward
    with engine.policy.decoder.paused():
        forward.predict([[5, 6]] * rows, [0] * rows)
        with Counter() as counter:
            forward.predict([[7]] * rows, [2] * rows)
    return counter.count


def measure(config: Any, merges: bool, episodes: int, in_flight: int) -> Measured:
    """Load the model, play episodes, and learn from them once; in a fresh process."""
    import torch
    from engine import play, to_groups, train

    from agentgym.engines.device import check_device
    from agentgym.engines.local.engine import LocalEngine
    from agentgym.engines.local.loading import load_model

    device = check_device(config.gpu)
    on_gpu = device == "cuda"

    def now() -> float:
        if not on_gpu:
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = load_model(
        config.model,
        device=device,
        rank=config.lora_rank,
        seed=0,
        precision=config.precision,
        recompute=config.gradient_checkpointing,
    )
    engine = LocalEngine(config, replace(loaded, merges=merges and loaded.merges))
    try:
        operations = count_operations(engine, 4)
        train(engine, to_groups(play(engine.policy, 8, 8)))  # memory is taken
        begun = now()
        played = play(engine.policy, episodes, in_flight)
        sampled = now()
        train(engine, to_groups(played))
        ended = now()
    finally:
        engine.close()
    held = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if on_gpu:
        held = torch.cuda.max_memory_reserved()
    tokens = sum(len(result.response_ids) for calls in played for _, result in calls)
    return Measured(operations, tokens, sampled - begun, ended - sampled, held)


def compare(options: Any) -> None:
    """Measure with the adapter merged and not, and print a table."""
    from agentgym.core.config import TrainingConfig
    from agentgym.engines.device import check_device
    from agentgym.engines.memory import check_memory

    with TemporaryDirectory() as name:
        write(options.architecture, Path(name))
        config = TrainingConfig.create(
            model=name, gpu=options.gpu, lora_rank=16, max_episode_tokens=2048
        )
        device = check_device(config.gpu)
        estimate = check_memory(config, device)
        found = []
        for merges in (False, True):
            with get_context("spawn").Pool(1) as pool:
                given = (config, merges, options.episodes, options.in_flight)
                found.append(pool.apply(measure, given))
        plain, merged = found
        parameters = json.loads((Path(name) / "config.json").read_text())["vocab_size"]

    unit = "s" if device == "cuda" else "CPU-s"
    print(f"Qwen2.5 of {options.architecture}, vocabulary {parameters:,}, LoRA rank 16")
    print(f"on {device}, {options.episodes} episodes.\n")
    print("| what | adapter apart | merged | ratio |\n|---|---|---|---|")

    def row(label: str, before: float, after: float, form: str = ",.0f") -> None:
        print(f"| {label} | {before:{form}} | {after:{form}} | {after / before:.2f} |")

    row("operations a decoding step", plain.operations, merged.operations)
    row(
        f"sampling, tokens/{unit}",
        plain.tokens / plain.sampling,
        merged.tokens / merged.sampling,
    )
    row(f"update, {unit}", plain.update, merged.update, ".2f")
    before, after = (
        EPISODES / options.episodes * (found.sampling + found.update) / 3600
        for found in (plain, merged)
    )
    label = f"{EPISODES:,} episodes at this rate, hours ({unit})"
    row(label, before, after, ".2f")
    row(
        "memory taken by the model and its training, GiB",
        plain.held / 2**30,
        merged.held / 2**30,
        ".2f",
    )
    print(f"\nMemory was estimated to be {estimate or 'unknown'}.")
    print("Tools and agents take their own time beside these.")
