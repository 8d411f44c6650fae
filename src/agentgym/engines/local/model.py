"""LoadedModel: run forward passes of the model that is sampled from and trained."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import MoeModelOutputWithPast

from agentgym.engines.adapter import SamplingCopy, names_of
from agentgym.engines.local.architecture import Traits
from agentgym.engines.local.attention import Layout
from agentgym.engines.local.decoding.kv_cache import CacheShape
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import SMALL_PARAMETERS

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model that can call tools.

    Attributes:
        model: The model; with LoRA, its layers contain the adapters.
        adapter: peft's wrapper of the same model; None without LoRA.
        template: The chat template, and the format of tool calls.
        cores: Number of threads that torch may use.
        context: Most tokens of prompt and response that model and memory allow.
        stop_ids: Tokens that end a response.
        cache_bytes: Memory for keys and values of running responses.
        cache_tokens: Number of tokens that fit into ``cache_bytes``.
        traits: How the layers can be computed.
        roles: Agents of a team that each have their own adapter; if empty, all agents
            share one adapter or have none.
        merges: Whether sampling uses a :class:`SamplingCopy`, which takes memory; False
            on a GPU with too little memory.
        recomputed: Layers that the backward pass computes again, to save memory.
        tree_nodes: Most tokens of a micro-batch, and also most nodes of a prefix tree;
            set if memory allows more than the defaults, else None.
        kept_tokens: Most tokens of a micro-batch for which no layers are recomputed.
        interrupted: Set this event to end an update after its current micro-batch.
    """

    name: str
    model: PreTrainedModel
    adapter: "PeftModel | None"
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate
    device: torch.device
    cores: int
    context: int
    stop_ids: frozenset[int]
    cache_bytes: int
    cache_tokens: int
    traits: Traits
    roles: tuple[str, ...] = ()
    merges: bool = True
    recomputed: tuple[nn.Module, ...] = ()
    tree_nodes: int | None = None
    kept_tokens: int = 0
    interrupted: Event = field(default_factory=Event)

    def chat_tokens(self) -> ChatTokens:
        """Return the converter between chat messages and this model's token ids."""
        return ChatTokens(
            self.name,
            self.tokenizer,
            self.template,
            self.stop_ids,
            self.context,
            self.vocabulary,
        )

    @property
    def is_small(self) -> bool:
        """Whether the model is on a CPU and too small for multi-threaded kernels."""
        return (
            self.model.num_parameters() < SMALL_PARAMETERS and self.device.type == "cpu"
        )

    @property
    def threads(self) -> tuple[int, int]:
        """Number of threads that compute parts, and of kernel threads for each part."""
        return (self.cores, 1) if self.is_small else (1, self.cores)

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of one token's KV cache; only for models that pack sequences."""
        assert self.traits.cache is not None
        return self.traits.cache

    def sampled(self) -> "tuple[LoadedModel, SamplingCopy | None]":
        """Return the model to sample from, and its :class:`SamplingCopy` or None.

        If there is a copy, it is the model to sample from, since it is faster. A model
        with an adapter gets a copy if memory allows it (``merges``), or if ``roles`` is
        set. The caller must call the copy's ``refresh`` after each update.
        """
        if self.adapter is None or not (self.merges or self.roles):
            return self, None
        made = SamplingCopy(self.model, names_of(self.roles))
        return replace(self, model=made.model, adapter=None), made

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary."""
        return int(self.model.config.get_text_config().vocab_size)

    def predict(self, states: Tensor) -> Tensor:
        """Convert the last layer's output to logits, (tokens, vocabulary)."""
        if self.traits.plain_head:
            head = self.model.get_output_embeddings()
            assert head is not None
            logits: Tensor = head(states)
        else:
            logits = head_of(self.model)(inputs_embeds=states[None]).logits[0]
        return logits

    def states(self, ids: Tensor, positions: Tensor, layout: Layout | None) -> Tensor:
        """Return the last layer's output for tokens, (tokens, width)."""
        return decoder_states(self.model, ids, positions, layout)

    @contextmanager
    def recomputing(self, wanted: bool) -> Iterator[None]:
        """Use activation checkpointing for the ``recomputed`` layers if ``wanted``.

        The forward pass keeps only the layers' inputs; the backward pass computes the
        layers again (Chen et al. 2016, https://arxiv.org/abs/1604.06174). This costs a
        third more arithmetic and keeps the activations of one layer instead of all.
        """
        layers = self.recomputed if wanted else ()
        for layer in layers:
            layer.forward = partial(
                checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
            )
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward

    def adapter_of(self, agent: str) -> int:
        """Return the index of an agent's own adapter; -1 if it has none."""
        return self.roles.index(agent) if agent in self.roles else -1

    @contextmanager
    def speaking(self, agent: str) -> Iterator[None]:
        """Compute and train with the adapter of an agent within the block."""
        if not self.roles or self.adapter is None:
            yield
        elif (number := self.adapter_of(agent)) < 0:
            with self.adapter.disable_adapter():
                yield
        else:
            self.adapter.set_adapter(names_of(self.roles)[number])
            yield

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return names and parameters that training changes.

        If each role has its own adapter, these are the parameters of all adapters,
        although peft sets ``requires_grad`` only for the adapter in use.
        """
        return [
            (name, parameter)
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad or (self.roles and ".lora_" in name)
        ]


def decoder_states(
    model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: Layout | None
) -> Tensor:
    """Return the last layer's output for tokens, (tokens, width)."""
    packed: dict[str, Any] = {}
    if layout is not None:
        # Layouts ignore the mask, but without it transformers would create one.
        mask = torch.zeros(1, 1, 1, 1, device=ids.device)
        packed = {
            "position_ids": positions[None],
            "attention_mask": mask,
            "layout": layout,
        }
    states: Tensor = model.get_decoder()(
        input_ids=ids[None], use_cache=False, **packed
    ).last_hidden_state
    return states[0]


def head_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model without its layers; it maps hidden states to logits.

    Some models scale or cap the logits. The copy runs the model's own forward pass, so
    it does the same, with the model's current weights.
    """
    decoder = model.get_decoder()
    head = copy.copy(model)
    head._modules = {
        name: _Through() if child and decoder in child.modules() else child
        for name, child in model._modules.items()
    }
    return head


class _Through(nn.Module):
    """A module instead of a model's layers; it returns its input unchanged."""

    def forward(self, inputs_embeds: Tensor, **_: Any) -> MoeModelOutputWithPast:
        return _States(last_hidden_state=inputs_embeds)  # type: ignore[arg-type]


class _States(MoeModelOutputWithPast):
    """A model output that has only states; every other field is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)
