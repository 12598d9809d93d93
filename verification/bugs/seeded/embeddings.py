"""Mistakes in the tables: their scale, their second use as a head, their padding row."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_reference import models, stacks
from torch_reference.embeddings import Embed
from torch_reference.heads import head_logits
from transformer_spec.config import ModelConfig
from verification.bugs.seeded_bug import SeededBug, github, swapped


def _unscaled(self: Embed, tokens: Tensor) -> Tensor:
    return self.weight[tokens]


def _attend_with_copy(self: Embed, hidden: Tensor) -> Tensor:
    return torch.einsum("BTD,VD->BTV", hidden, self.weight.detach().clone())


def _scaled_unless_tied(
    config: ModelConfig, lm_head: nn.Module | None, embed: Embed | None, hidden: Tensor
) -> Tensor:
    if config.tie_embeddings and embed is not None:
        logits = torch.einsum("BTD,VD->BTV", hidden, embed.weight)
        return logits if lm_head is None else lm_head(logits)
    return head_logits(config, lm_head, embed, hidden * config.d_model**-0.5)


def _with_padding_row(self: Embed, tokens: Tensor) -> Tensor:
    return F.embedding(tokens, self.weight, padding_idx=0) * self.config.embedding_scale


def _make_with_padding_row(config: ModelConfig) -> nn.Module:
    return nn.Embedding(config.max_seq_len, config.d_model, padding_idx=0)


BUGS = (
    SeededBug(
        id="EMB-01",
        name="Token embeddings not scaled",
        component="embedding",
        sources=(
            "https://github.com/SamLynnEvans/Transformer/issues/10",
            "https://github.com/OpenNMT/OpenNMT-py/issues/1722",
            "https://github.com/Kyubyong/transformer/issues/130",
        ),
        how="The factor sqrt(d_model) that the config asks for is left out.",
        case="encoder_decoder",
        at="embed",
        cause=r"multiplied by 1, where the reference has \S+ = d_model\*\*0.5",
        install=partial(swapped, Embed, "forward", _unscaled),
    ),
    SeededBug(
        id="EMB-02",
        name="Head scale applied to the untied heads",
        component="embedding",
        sources=github("ml-explore/mlx-examples/pull/591", "huggingface/transformers/pull/43681"),
        how="The question whether the head is tied is asked the wrong way: a tied one gets none.",
        case="scaled_head",
        at="",
        cause=r"tied head's input is scaled by 1, where the reference has \S+ = d_model\*\*-0.5",
        install=partial(swapped, models, "head_logits", _scaled_unless_tied),
    ),
    SeededBug(
        id="EMB-03",
        name="Head that only starts out equal to the embedding",
        component="embedding",
        sources=(
            "https://github.com/karpathy/nanoGPT/pull/21",
            "https://github.com/huggingface/transformers/pull/26292",
        ),
        how="The head multiplies by a copy of the table, so its gradient never reaches the table.",
        case="modern",
        at="decoder.embed",
        cause="none of a tied head's",
        install=partial(swapped, Embed, "attend", _attend_with_copy),
    ),
    SeededBug(
        id="EMB-04",
        name="Token 0 is taken for padding",
        component="embedding",
        sources=(
            "https://github.com/pytorch/pytorch/issues/6411",
            "https://github.com/pytorch/pytorch/issues/6495",
            "https://github.com/FluxML/Flux.jl/issues/2684",
        ),
        how="padding_idx=0 keeps the gradient of row 0 of the token table at zero.",
        case="decoder",
        at="decoder.embed",
        cause="row 0 of weight gets no gradient",
        install=partial(swapped, Embed, "forward", _with_padding_row),
    ),
    SeededBug(
        id="EMB-05",
        name="Position 0 is taken for padding",
        component="embedding",
        sources=(
            "https://github.com/ibalazevic/TuckER/issues/17",
            "https://github.com/huggingface/transformers/issues/19265",
        ),
        how="padding_idx=0 on the position table: the vector of the first position never learns.",
        case="decoder",
        at="decoder.pos_embed",
        cause="row 0 of weight gets no gradient",
        install=partial(swapped, stacks, "make_positions", _make_with_padding_row),
    ),
)
