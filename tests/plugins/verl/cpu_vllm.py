"""vLLM's build for CPUs as a rollout backend of verl's, for tests.

verl's own backend has vLLM in its own environment, and sets each new weight on vLLM's
layers: vLLM's build for CPUs wants another torch, and has packed the weights by then.
So the server is a process of vLLM's environment, and reads each version from a file.
"""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMAND = "CPU_ROLLOUT_VLLM"
"""Variable with the path of vLLM's command."""
_STARTS_S = 900.0
_ANSWERS_S = 300.0
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # it has the endpoint that reads weights again
}


class VllmServer:
    """A Ray actor with a ``vllm serve``, which starts with the first weights.

    Args:
        path: The model's folder.
        rollout: verl's settings of the rollout.
    """

    def __init__(self, path: str, rollout: Any) -> None:
        self.folder = Path.home() / "served"  # HOME is the run's, and removed with it
        shutil.copytree(path, self.folder, ignore=shutil.ignore_patterns("*.saf*"))
        # vLLM packs the output layer for itself, and reads a tied one again for the
        # embeddings alone.
        file = self.folder / "config.json"
        model = json.loads(file.read_text()) | {"tie_word_embeddings": False}
        file.write_text(json.dumps(model))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.words = self._words(path, rollout)
        self.process: subprocess.Popen[bytes] | None = None

    def _words(self, path: str, rollout: Any) -> list[str]:
        flags = {
            "served_model_name": path,
            "host": "127.0.0.1",
            "port": self.port,
            "dtype": rollout.dtype,
            "max_model_len": rollout.max_model_len,
            "max_num_batched_tokens": rollout.max_model_len,
            "seed": rollout.seed,
            "logprobs_mode": rollout.logprobs_mode,
            "generation_config": "vllm",
            "enforce_eager": True,
            "enable_chunked_prefill": False,  # with a seed it ends vLLM's worker
            **rollout.engine_kwargs["vllm"],
        }
        words = [os.environ[COMMAND], "serve", str(self.folder)]
        for key, value in flags.items():
            name = key.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
            elif value is not None:
                words += [f"--{name}", str(value)]
        return words

    def get_address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def update_weights(self, state: dict[str, Any], version: int | None) -> None:
        from safetensors.torch import save_file

        embeddings = state["model.embed_tokens.weight"]
        state.setdefault("lm_head.weight", embeddings.clone())
        written = self.folder / "written"
        save_file(state, written, metadata={"format": "pt"})
        written.replace(self.folder / "model.safetensors")
        if self.process is None:
            self._start()
            return
        self._ask("POST", "/collective_rpc", {"method": "reload_weights"})
        self._ask("POST", "/reset_prefix_cache", {})

    def _start(self) -> None:
        from agentgym.plugins.vllm import supervise

        own = {"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"}
        kept = {name: value for name, value in os.environ.items() if name not in own}
        ends_with_this = [
            sys.executable,
            "-P",
            supervise.__file__,
            str(os.getpid()),
            "",
        ]
        self.process = subprocess.Popen(
            [*ends_with_this, *self.words],
            env={**kept, **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
        )
        until = time.monotonic() + _STARTS_S
        while time.monotonic() < until:
            assert self.process.poll() is None, "vLLM has ended; its output is above"
            try:
                self._ask("GET", "/health", None)
                return
            except OSError:
                time.sleep(0.5)
        raise TimeoutError("vLLM does not answer")

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None) -> None:
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWERS_S)
        text = None if body is None else json.dumps(body)
        asked.request(verb, path, text, {"Content-Type": "application/json"})
        answer = asked.getresponse()
        said = answer.read()
        asked.close()
        assert answer.status == 200, (path, answer.status, said[:500])

    def sleep(self) -> None: ...  # there is no GPU to give back

    def wake_up(self) -> None: ...

    def abort_all_requests(self) -> None: ...

    def resume_generation(self) -> None: ...
