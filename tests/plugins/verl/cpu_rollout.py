"""What verl has on a machine without a GPU, for tests: engine and rollout backends.

Both backends sample from the weights that verl hands over in its ``naive`` way, and
answer with token ids and log-probabilities: ``hf_cpu`` with transformers, in a process
of Ray's, and ``vllm_cpu`` with vLLM. A plug-in for a version of verl calls
:func:`install`.
"""

import hashlib
import json
import os
import re
import threading
import time
import uuid
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from cpu_vllm import VllmServer


def _calls(text: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Do what vLLM's parser of Hermes calls does with a whole answer."""
    calls = []
    for found in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL):
        try:
            call = json.loads(found)
            arguments = call["arguments"]
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments)
            function = {"name": call["name"], "arguments": arguments}
        except (ValueError, KeyError, TypeError):
            return text, []
        name = "call_" + uuid.uuid4().hex[:12]
        calls.append({"id": name, "type": "function", "function": function})
    head = text.partition("<tool_call>")[0] if calls else text
    return head or None, calls


class CpuServer:
    """A Ray actor that answers chat completions over HTTP, one after the other."""

    def __init__(self, path: str, _: Any) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.path, self.version, self.asleep = path, -1, True
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.model.eval()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.chat(asked)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def chat(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = self.tokenizer.apply_chat_template(
            body["messages"],
            tools=body.get("tools") or None,
            tokenize=False,
            add_generation_prompt=True,
        )
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        room = self.model.config.max_position_embeddings - len(ids)
        if room <= 0:
            told = f"This model's maximum context length is {room + len(ids)} tokens."
            return 400, {"error": {"message": told, "code": 400}}
        most, seed = int(body.get("max_tokens") or 64), int(body.get("seed") or 0)
        out, logprobs = self._sample(
            ids, min(most, room), float(body.get("temperature", 1.0)), seed
        )
        finish = "stop" if out[-1] == self.tokenizer.eos_token_id else "length"
        content, calls = _calls(self.tokenizer.decode(out, skip_special_tokens=True))
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = calls
            finish = "tool_calls" if finish == "stop" else finish
        listed = [
            {"token": self.tokenizer.decode([t]), "logprob": p, "top_logprobs": []}
            for t, p in zip(out, logprobs, strict=True)
        ]
        choice = {
            "index": 0,
            "finish_reason": finish,
            "token_ids": out,
            "message": message,
            "logprobs": {"content": listed},
        }
        return 200, {
            "id": "chatcmpl-" + uuid.uuid4().hex,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.path,
            "prompt_token_ids": ids,
            "choices": [choice],
            "usage": {"prompt_tokens": len(ids), "completion_tokens": len(out)},
        }

    def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        **_: Any,
    ) -> Any:
        """Answer verl's agent loops, which send tokens and get tokens."""
        from verl.workers.rollout.replica import TokenOutput

        asked = sampling_params
        most, seed = asked["max_tokens"], int.from_bytes(os.urandom(4))
        ids, logprobs = self._sample(prompt_ids, most, asked["temperature"], seed)
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs,
            stop_reason="completed",
            extra_fields={"global_steps": self.version},
        )

    @torch.no_grad()
    def _sample(
        self, ids: list[int], most: int, temperature: float, seed: int
    ) -> tuple[list[int], list[float]]:
        generator = torch.Generator().manual_seed(seed)
        out: list[int] = []
        logprobs: list[float] = []
        past, latest = None, torch.tensor([ids])
        with self.lock:
            assert not self.asleep, "asked while asleep"
            for _ in range(most):
                made = self.model(latest, past_key_values=past, use_cache=True)
                past = made.past_key_values
                logits = made.logits[0, -1].float() / max(temperature, 1e-4)
                logprob = torch.log_softmax(logits, -1)
                token = int(torch.multinomial(logprob.exp(), 1, generator=generator))
                out.append(token)
                logprobs.append(float(logprob[token]))
                latest = torch.tensor([[token]])
                if token == self.tokenizer.eos_token_id:
                    break
        return out, logprobs

    def get_address(self) -> str:
        return self.address

    def update_weights(self, state: dict[str, Any], version: int | None) -> None:
        with self.lock:
            wrong = self.model.load_state_dict(state, strict=False)
            tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else {}
            assert set(wrong.missing_keys) <= set(tied), wrong
            assert not wrong.unexpected_keys, wrong
            self._log()
            self.version = -1 if version is None else version
            self.asleep = False

    def _log(self) -> None:
        """Write down which weights answer, where a test wants to know."""
        if path := os.environ.get("CPU_ROLLOUT_LOG"):
            seen = hashlib.sha256()
            for value in self.model.state_dict().values():
                seen.update(value.numpy().tobytes())
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{seen.hexdigest()}\n")

    def sleep(self) -> None:
        self.asleep = True

    def wake_up(self) -> None:
        self.asleep = False

    def abort_all_requests(self) -> None: ...

    def resume_generation(self) -> None: ...


def _replica(made: type) -> Any:
    import ray
    from verl.workers.rollout.replica import RolloutReplica

    class CpuReplica(RolloutReplica):
        async def launch_servers(self) -> None:
            actor = ray.remote(made).options(
                name=f"cpu_rollout_{self.replica_rank}", num_cpus=0, max_concurrency=16
            )
            server = actor.remote(self.model_config.path, self.config)
            self.servers, self._server_handle = [server], server
            self._server_address = await server.get_address.remote()

    return CpuReplica


def __getattr__(name: str) -> Any:  # verl looks for the class by its name
    if name != "CpuAdapter":
        raise AttributeError(name)
    import ray
    from verl.workers.rollout.base import BaseRollout

    class CpuAdapter(BaseRollout):
        """The worker's half: it hands weights to the server."""

        async def resume(self, tags: Any) -> None: ...

        async def release(self) -> None: ...

        async def update_weights(
            self, weights: Any, global_steps: int | None = None, **_: Any
        ) -> None:
            state = {k: v.detach().float().cpu().clone() for k, v in weights}
            if int(os.environ.get("RANK", 0)) == 0:
                server = ray.get_actor("cpu_rollout_0")
                await server.update_weights.remote(state, global_steps)

    globals()[name] = CpuAdapter
    return CpuAdapter


def install() -> None:
    """Name the engine and the rollout backends of a machine without a GPU."""
    import verl.utils.distributed as distributed
    from verl.workers.engine.base import EngineRegistry
    from verl.workers.engine.fsdp.transformer_impl import (
        FSDPEngineWithLMHead,
        FSDPEngineWithValueHead,
    )
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    original = distributed.initialize_global_process_group_ray
    distributed.initialize_global_process_group_ray = (  # "cpu:gloo,cpu:gloo" else
        lambda timeout_second=None, backend=None: original(
            timeout_second, backend or "cpu:gloo"
        )
    )
    EngineRegistry.register("language_model", ["fsdp2"], device="cpu")(
        FSDPEngineWithLMHead
    )
    EngineRegistry.register("value_model", ["fsdp2"], device="cpu")(
        FSDPEngineWithValueHead
    )
    for name, made in (("hf_cpu", CpuServer), ("vllm_cpu", VllmServer)):
        base._ROLLOUT_REGISTRY[(name, "async")] = "cpu_rollout.CpuAdapter"
        RolloutReplicaRegistry.register(name, partial(_replica, made))
