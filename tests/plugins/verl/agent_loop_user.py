"""What verl's own worker of agent loops makes of ours; runs with verl.

verl's servers are the local engine's decoder here: tokens in, tokens out. Prints what
the worker returns for each sample, and what verl's other trainer is given for one.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import hydra
import numpy as np
import pyarrow.parquet
from omegaconf import OmegaConf
from verl import DataProto
from verl.experimental.agent_loop import AgentLoopWorker
from verl.experimental.agent_loop.agent_loop import (
    DictConfigWrap,
    _agent_loop_registry,
)
from verl.workers.rollout.replica import TokenOutput

from agentgym.engines.local.decoding.decoder import DecodingJob
from agentgym.engines.local.policy import LocalPolicy
from agentgym.plugins.verl.agent_loop import TASK
from agentgym.plugins.verl.compose import compose


class Servers:
    """verl's client of its servers."""

    def __init__(self, model: str) -> None:
        self.policy = LocalPolicy.load(model, gpu="none")
        self.asked: list[dict[str, Any]] = []

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        self.asked.append(sampling_params)
        job = DecodingJob(
            prompt=prompt_ids,
            head=0,
            session=request_id,
            temperature=sampling_params["temperature"],
            max_tokens=sampling_params["max_tokens"],
            seed=0,
        )
        self.policy.decoder.submit(job)
        made = await asyncio.wrap_future(job.future)
        return TokenOutput(
            token_ids=made.ids,
            log_probs=made.logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": 7},
        )


async def main(given: dict[str, Any]) -> None:
    settings = {
        "actor_rollout_ref.model.path": given["model"],
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": given["loop"],
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0.0,
        **given["settings"],
    }
    config = compose(settings)
    OmegaConf.resolve(config)
    servers = Servers(given["model"])
    worker = AgentLoopWorker(config, servers)
    samples = pyarrow.parquet.read_table(given["data"]).to_pylist()
    columns = {
        name: np.array([sample[name] for sample in samples] + [None], dtype=object)[:-1]
        for name in ("agent_name", TASK, "data_source")
    }
    columns["raw_prompt"] = np.empty(len(samples), dtype=object)
    columns["raw_prompt"][:] = [sample["prompt"] for sample in samples]
    batch = DataProto.from_dict(
        tensors={}, non_tensors=columns, meta_info={"validate": True}
    )
    try:
        made = await worker.generate_sequences(batch)
    except Exception as error:  # noqa: BLE001 - compared by the test
        json.dump({"error": f"{type(error).__name__}: {error}"}, sys.stdout)
        return
    tensors = {name: value.tolist() for name, value in made.batch.items()}
    loop = hydra.utils.instantiate(
        _agent_loop_registry["agentgym"],
        trainer_config=DictConfigWrap(worker.config),
        server_manager=servers,
        tokenizer=worker.tokenizer,
        processor=worker.processor,
        dataset_cls=worker.dataset_cls,
        data_config=DictConfigWrap(worker.config.data),
    )
    given_by_v1 = {TASK: samples[0][TASK], "uid": uuid4().hex, "session_id": 0}
    many = await loop.run({"temperature": 0.0}, **given_by_v1)
    told = {
        **tensors,
        "acc": made.non_tensor_batch["acc"].tolist(),
        "turns": made.non_tensor_batch["__num_turns__"].tolist(),
        "asked": servers.asked,
        "many": [each.model_dump() for each in many],
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
