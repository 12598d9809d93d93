"""One layer of a stack: attention, optional cross-attention, feed-forward, each in a residual."""

from collections.abc import Callable

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from flax_transformer.attention import Attention
from flax_transformer.dropout import Dropout
from flax_transformer.feed_forward import make_ffn
from flax_transformer.norms import make_norm
from transformer_spec.config import ModelConfig, PostNorm, PreNorm


class Block(nn.Module):
    """Pre-norm: x + drop(f(norm(x))). Post-norm: norm(x + drop(f(x))). f: each sublayer in turn.

    Args:
        config: sizes and slots.
        cross_attention: whether a sublayer that attends to the encoder stands in the middle.
    Source: Vaswani et al. 2017, section 3.1 (post-norm) and 5.4 (dropout on the output of each
    sublayer, before it is added); Xiong et al. 2020 (pre-norm).
    """

    config: ModelConfig
    cross_attention: bool = False

    def setup(self):
        c = self.config
        self.attn_norm = make_norm(c)
        self.attn = Attention(c)
        if self.cross_attention:
            self.cross_norm = make_norm(c)
            self.cross_attn = Attention(c)
        self.ffn_norm = make_norm(c)
        self.ffn = make_ffn(c)
        self.attn_out_dropout = Dropout(c.attn_out_dropout)
        self.ffn_out_dropout = Dropout(c.ffn_out_dropout)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "..."] | None = None,
        memory: Float[Array, "B S D"] | None = None,
        memory_mask: Bool[Array, "..."] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T D"]:
        def attend(h):
            out, _ = self.attn(h, None, mask, deterministic=deterministic)
            return self.attn_out_dropout(out, deterministic=deterministic)

        def attend_to_memory(h):
            out, _ = self.cross_attn(h, memory, memory_mask, deterministic=deterministic)
            return self.attn_out_dropout(out, deterministic=deterministic)

        def feed_forward(h):
            out = self.ffn(h, deterministic=deterministic)
            return self.ffn_out_dropout(out, deterministic=deterministic)

        x = self._residual(x, self.attn_norm, attend)
        if self.cross_attention:
            x = self._residual(x, self.cross_norm, attend_to_memory)
        return self._residual(x, self.ffn_norm, feed_forward)

    def _residual(self, x: Array, norm: nn.Module, sublayer: Callable[[Array], Array]) -> Array:
        match self.config.residual:
            case PreNorm():
                return x + sublayer(norm(x))
            case PostNorm():
                return norm(x + sublayer(x))
