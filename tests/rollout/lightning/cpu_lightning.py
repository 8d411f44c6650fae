"""verl 0.8, as Agent Lightning's trainer needs it, on a machine without a GPU.

Loaded by ``VERL_USE_EXTERNAL_MODULES``. That version knows no platforms: what it
expects of a GPU is put where it looks for it.
"""

from typing import Any

import agentlightning.verl.per_rollout_loss  # noqa: F401 - registers its loss
import cpu_rollout
import torch
import verl.utils.attention_utils as attention_utils


def _index_first_axis(x: Any, indices: Any) -> Any:
    return x[indices]


def _unpad_input(x: Any, mask: Any, unused_mask: Any = None) -> Any:
    lengths = mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    ends = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return x.flatten(0, 1)[indices], indices, ends, int(lengths.max()), lengths


def _pad_input(x: Any, indices: Any, batch: int, length: int) -> Any:
    padded = torch.zeros(batch * length, *x.shape[1:], dtype=x.dtype)
    padded[indices] = x
    return padded.view(batch, length, *x.shape[1:])


def _install() -> None:
    for name in ("memory_allocated", "memory_reserved"):
        for prefix in ("", "max_"):
            setattr(torch.cpu, prefix + name, lambda *_a, **_k: 0)
    for name in ("empty_cache", "reset_peak_memory_stats", "ipc_collect"):
        setattr(torch.cpu, name, lambda *_a, **_k: None)
    attention_utils._get_attention_functions = lambda: (  # it would want flash-attn
        _index_first_axis,
        _pad_input,
        None,
        _unpad_input,
    )
    cpu_rollout.install()


_install()
