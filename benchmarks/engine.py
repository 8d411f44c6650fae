"""What the local engine does per CPU-second; prints a Markdown table.

    python benchmarks/engine.py [--model nano] [--episodes 256] [--in-flight 64]
    python benchmarks/engine.py --architecture 1.5b --episodes 64 [--gpu auto]

An episode is a conversation of three model calls of at most 20 tokens with a system
prompt and eight tools; tool results are made up. All figures are of one process with
one thread and include rendering and tokenising. With ``--architecture`` it is a model
of Qwen2.5's shape with random weights, on a GPU if there is one: see random_qwen.py.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

CALLS, TOKENS = 3, 20
SYSTEM = (
    "You are a coding assistant. Read a file before you edit it, run the tests after "
    "an edit, and never touch a test file. Answer in one short sentence when done."
)
NAMES = {
    "list_files": ("folder",),
    "read_file": ("path",),
    "search_code": ("pattern", "folder"),
    "edit_file": ("path", "old", "new"),
    "run_tests": ("path",),
    "run_script": ("path", "arguments"),
    "lint": ("path",),
    "format_file": ("path",),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does what {name.replace('_', ' ')} says.",
            "parameters": {
                "type": "object",
                "properties": {
                    a: {"type": "string", "description": f"The {a} to use."}
                    for a in arguments
                },
                "required": list(arguments),
            },
        },
    }
    for name, arguments in NAMES.items()
]
TRAINABLE = {"tool_selection": True, "parameter_selection": True}


def opening(task: int) -> list[dict[str, Any]]:
    """Return the first messages of a task."""
    rng = random.Random(task)
    path = f"{rng.choice(['core', 'utils', 'shop'])}/{rng.choice('abcdef')}_{task}.py"
    ask = f"Please fix the failing test of {path} and tell me what was wrong with it."
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ask}]


async def episode(policy: Any, task: int, attempt: int) -> list[tuple[Any, Any]]:
    """Play one conversation; return its requests and results."""
    from agentgym.core.policy import ChatRequest

    messages, played = opening(task), []
    rng = random.Random(f"{task}/{attempt}")
    for turn in range(CALLS):
        request = ChatRequest(
            messages=list(messages),
            tools=TOOLS,
            max_tokens=TOKENS,
            seed=hash((task, attempt, turn)) & 0xFFFFFFFF,
            session=f"{task}-{attempt}",
        )
        result = await policy.chat(request)
        played.append((request, result))
        calls = [
            {
                "id": c.id,
                "type": "function",
                "function": {"name": c.name, "arguments": c.arguments},
            }
            for c in result.tool_calls
        ]
        messages.append(
            {"role": "assistant", "content": result.content or "", "tool_calls": calls}
        )
        found = f"line {rng.randrange(90)}: total = a + b\nexit code {rng.randrange(2)}"
        messages.append({"role": "tool", "tool_call_id": "c", "content": found})
    return played


def play(policy: Any, episodes: int, in_flight: int, group: int = 8) -> list[Any]:
    """Play episodes in groups of the same task, so many at a time."""

    async def run() -> list[Any]:
        slots = asyncio.Semaphore(in_flight)

        async def one(index: int) -> Any:
            async with slots:
                return await episode(policy, index // group, index % group)

        return await asyncio.gather(*map(one, range(episodes)))

    return asyncio.run(run())


def measured[T](work: Callable[[], T]) -> tuple[T, float]:
    """Return what ``work`` returned, and the CPU-seconds of the process."""
    before = time.process_time()
    result = work()
    return result, time.process_time() - before


def generate(
    policy: Any, requests: Sequence[Any], dtype: str = "float32"
) -> tuple[int, float, float]:
    """Sample with ``transformers.generate``; return tokens, CPU-seconds and seconds."""
    import torch
    from transformers import AutoModelForCausalLM

    from agentgym.models.folder import model_source

    loaded = policy._loaded
    tokenizer = loaded.tokenizer
    source = model_source(loaded.name)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    texts = [
        tokenizer.apply_chat_template(
            r.messages, tools=r.tools, tokenize=False, add_generation_prompt=True
        )
        for r in requests
    ]
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, add_special_tokens=False
    )
    inputs.pop("token_type_ids", None)
    with torch.inference_mode():
        model.generate(**inputs, do_sample=False, max_new_tokens=2)
        started, begun = time.process_time(), time.perf_counter()
        output = model.generate(
            **inputs, do_sample=True, max_new_tokens=TOKENS, top_k=0
        )
    sampled = output[:, inputs["input_ids"].shape[1] :]
    spent = time.process_time() - started
    count = int((sampled != tokenizer.pad_token_id).sum())
    return count, spent, time.perf_counter() - begun


def to_groups(played: Sequence[Any], group: int = 8) -> list[list[Any]]:
    """Turn episodes into scored trajectories; rewards are made up."""
    from agentgym.core.trajectory import ModelCall, Trajectory

    rng = random.Random(0)
    rollouts = [
        Trajectory(
            rollout_id=str(index),
            scenario="benchmark",
            task_id=str(index // group),
            reward=rng.uniform(-1, 1),
            steps=[
                ModelCall(
                    prompt_ids=result.prompt_ids,
                    response_ids=result.response_ids,
                    logprobs=result.logprobs,
                )
                for _, result in calls
            ],
        )
        for index, calls in enumerate(played)
    ]
    return [rollouts[i : i + group] for i in range(0, len(rollouts), group)]


def train(engine: Any, groups: list[list[Any]]) -> int:
    """Do one update; return how many sequences it was made from."""
    made = batch(engine, groups)
    engine.update(made)
    return len(made.sequences)


def batch(engine: Any, groups: list[list[Any]]) -> Any:
    """Make rollouts into what is trained."""
    from agentgym.train.batch import BatchBuilder

    builder = BatchBuilder("rloo", TRAINABLE, engine.label, 0.0)
    return builder.build(groups, lambda t: [t.reward or 0.0] * CALLS).batch


def train_plainly(engine: Any, groups: list[list[Any]]) -> None:
    """Forward and backward of the same sequences, padded, nothing shared."""
    import torch

    loaded = engine._loaded
    found = sorted(batch(engine, groups).sequences, key=lambda s: len(s.ids))
    for start in range(0, len(found), 16):
        chunk = found[start : start + 16]
        longest = max(len(s.ids) for s in chunk)
        ids = torch.tensor([s.ids + [0] * (longest - len(s.ids)) for s in chunk])
        logits = loaded.model(ids).logits
        logprobs = torch.log_softmax(logits.float(), -1)
        total = torch.zeros(())
        for row, sequence in enumerate(chunk):
            at = torch.tensor([t.position for t in sequence.trained])
            gain = torch.tensor([t.advantage for t in sequence.trained])
            total = total - (logprobs[row, at - 1, ids[row, at]] * gain).sum()
        total.backward()
    loaded.model.zero_grad()


def in_form(policy: Any, count: int, in_flight: int) -> tuple[int, float, float]:
    """Ask for answers in a JSON schema.

    Returns:
        Tokens, CPU-seconds of all, and of the grammar's part of the decoding steps.
    """
    from agentgym.core.policy import ChatRequest
    from agentgym.engines.local.decoding import batch
    from agentgym.engines.tokens.grammar_path import GrammarPath

    parameters = {
        "type": "object",
        "properties": {
            "route": {"enum": ["billing", "technical", "sales", "done"]},
            "urgent": {"type": "boolean"},
            "reason": {"type": "string", "maxLength": 40},
            "score": {"type": "integer", "minimum": 0, "maximum": 100},
        },
        "required": ["route", "urgent", "reason", "score"],
    }
    function = {"name": "Route", "description": "Who goes on", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    requests = [
        ChatRequest(opening(n // 8), tools, 1.0, 80, n, wants_call=True, form="Route")
        for n in range(count)
    ]
    spent = 0.0

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            nonlocal spent
            before = time.thread_time()
            try:
                return work(*given)
            finally:
                spent += time.thread_time() - before

        return run

    async def run() -> list[Any]:
        slots = asyncio.Semaphore(in_flight)

        async def one(request: Any) -> Any:
            async with slots:
                return await policy.chat(request)

        return await asyncio.gather(*map(one, requests))

    plain = batch._hold, GrammarPath.advance, GrammarPath.draft
    batch._hold, GrammarPath.advance, GrammarPath.draft = map(timed, plain)
    try:
        results, seconds = measured(lambda: asyncio.run(run()))
    finally:
        batch._hold, GrammarPath.advance, GrammarPath.draft = plain
    return sum(len(r.response_ids) for r in results), seconds, spent


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="nano")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--architecture", choices=["tiny", "0.5b", "1.5b"])
    parser.add_argument("--gpu", default="auto", help="of --architecture")
    options = parser.parse_args()
    if options.architecture:
        from random_qwen import compare

        compare(options)
        return

    from agentgym.core.config import TrainingConfig
    from agentgym.engines.local.engine import LocalEngine

    rows: list[tuple[str, str]] = []
    for mode in ("", "without drafts", "deterministic"):
        deterministic = mode == "deterministic"
        engine = LocalEngine.create(
            TrainingConfig.create(
                model=options.model, gpu="none", deterministic=deterministic
            )
        )
        if mode == "without drafts":
            engine.policy.decoder.drafted = 0
        play(engine.policy, 32, 32)
        played, seconds = measured(
            lambda e=engine: play(e.policy, options.episodes, options.in_flight)
        )
        tokens = sum(len(r.response_ids) for calls in played for _, r in calls)
        label = f"sampling, {options.in_flight} in flight"
        label += f", {mode}" if mode else ""
        rate = f"{tokens / seconds:,.0f} tokens/CPU-s"
        rows.append((label, f"{rate}, {options.episodes / seconds:.0f} episodes/CPU-s"))
        if mode != "deterministic":
            for when in ("new", "seen before"):
                count, whole, masks = in_form(
                    engine.policy, options.episodes, options.in_flight
                )
                extra = masks / max(1e-9, whole - masks)
                label = f"answers in a JSON schema, {when}{', ' if mode else ''}{mode}"
                rate = f"{count / whole:,.0f} tokens/CPU-s"
                rows.append((label, f"{rate}; the grammar adds {extra:.1%} to a token"))
        if mode:
            engine.close()
            continue
        groups = to_groups(played)
        train(engine, groups[:4])
        sequences, update = measured(lambda e=engine, g=groups: train(e, g))
        length = sum(
            len(t.model_calls[-1].prompt_ids + t.model_calls[-1].response_ids)
            for group in groups
            for t in group
        )
        rows.append(
            (
                "training, prefixes shared",
                (
                    f"{length / update:,.0f} tokens/CPU-s, "
                    f"{options.episodes / update:.0f} episodes/CPU-s "
                    f"({length / options.episodes:.0f} tokens an episode, "
                    f"{sequences} sequences)"
                ),
            )
        )
        _, plain = measured(lambda e=engine, g=groups: train_plainly(e, g))
        rows.append(
            (
                "training, nothing shared",
                (
                    f"{length / plain:,.0f} tokens/CPU-s, "
                    f"{options.episodes / plain:.0f} episodes/CPU-s"
                ),
            )
        )
        both = options.episodes / (seconds + update)
        rows.append(("sampling and training", f"{both:.0f} episodes/CPU-s"))
        requests = [call[0] for calls in played for call in calls][: options.in_flight]
        count, seconds, _ = generate(engine.policy, requests)
        rows.append(
            (
                "`transformers.generate`, same batch",
                f"{count / seconds:,.0f} tokens/CPU-s",
            )
        )
        engine.close()

    print(f"Model {options.model}, {options.episodes} episodes of {CALLS} calls.\n")
    print("| what | figure |\n|---|---|")
    for label, figure in rows:
        print(f"| {label} | {figure} |")


if __name__ == "__main__":
    main()
