"""One layer of a stack: attention, optional cross-attention, feed-forward, each in a residual."""

from collections.abc import Callable

import flax.linen as nn
from jaxtyping import Array, Bool, Float

from flax_transformer.attention import Attention
from flax_transformer.cache import LayerCache
from flax_transformer.dropout import Dropout
from flax_transformer.moe import make_ffn
from flax_transformer.norms import make_norm
from flax_transformer.positions import Rotation
from transformer_spec.config import DeepNorm, ModelConfig, PostNorm, PreNorm, SandwichNorm


class Block(nn.Module):
    """Each sublayer f in turn, with dropout on its output, in a residual.

    Pre-norm: x + f(norm(x)). Post-norm: norm(x + f(x)). Sandwich: x + norm'(f(norm(x))). Deep:
    norm(alpha x + f(x)).

    Args:
        config: sizes and slots.
        cross_attention: whether a sublayer that attends to the encoder stands in the middle.
    Source: Vaswani et al. 2017, section 3.1 (post-norm) and 5.4 (dropout on the output of each
    sublayer, before it is added); Xiong et al. 2020 (pre-norm); Ding et al. 2021 (sandwich);
    Wang et al. 2022 (deep).
    """

    config: ModelConfig
    cross_attention: bool = False

    def setup(self):
        c = self.config
        self.attn_norm = make_norm(c.norm, c.d_model)
        self.attn = Attention(c)
        if self.cross_attention:
            self.cross_norm = make_norm(c.norm, c.d_model)
            self.cross_attn = Attention(c)
        self.ffn_norm = make_norm(c.norm, c.d_model)
        self.ffn = make_ffn(c)
        sandwich = isinstance(c.residual, SandwichNorm)
        self.attn_out_norm = make_norm(c.norm, c.d_model) if sandwich else None
        self.cross_out_norm = (
            make_norm(c.norm, c.d_model) if sandwich and self.cross_attention else None
        )
        self.ffn_out_norm = make_norm(c.norm, c.d_model) if sandwich else None
        self.attn_out_dropout = Dropout(c.attn_out_dropout)
        if self.cross_attention:
            self.cross_out_dropout = Dropout(c.attn_out_dropout)
        self.ffn_out_dropout = Dropout(c.ffn_out_dropout)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        mask: Bool[Array, "..."] | None = None,
        memory: Float[Array, "B S D"] | None = None,
        memory_mask: Bool[Array, "..."] | None = None,
        rotation: Rotation | None = None,
        bias: Float[Array, "..."] | None = None,
        cache: LayerCache | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D"], LayerCache | None]:
        """The output, and the layer's cache with these tokens appended, where there is one.

        A pure function of its arguments: blocks can be scanned over, or recomputed backward.
        """

        def attend(h):
            nonlocal cache
            out, _, cache = self.attn(
                h, None, mask, rotation, bias, cache, deterministic=deterministic
            )
            return self.attn_out_dropout(out, deterministic=deterministic)

        def attend_to_memory(h):
            out, _, _ = self.cross_attn(h, memory, memory_mask, deterministic=deterministic)
            return self.cross_out_dropout(out, deterministic=deterministic)

        def feed_forward(h):
            out = self.ffn(h, deterministic=deterministic)
            return self.ffn_out_dropout(out, deterministic=deterministic)

        x = self._residual(x, self.attn_norm, attend, self.attn_out_norm)
        if self.cross_attention:
            x = self._residual(x, self.cross_norm, attend_to_memory, self.cross_out_norm)
        x = self._residual(x, self.ffn_norm, feed_forward, self.ffn_out_norm)
        return x, cache

    def _residual(
        self,
        x: Array,
        norm: nn.Module,
        sublayer: Callable[[Array], Array],
        out_norm: nn.Module | None,
    ) -> Array:
        match self.config.residual:
            case PreNorm() | SandwichNorm():
                out = sublayer(norm(x))
                return x + (out if out_norm is None else out_norm(out))
            case PostNorm():
                return norm(x + sublayer(x))
            case DeepNorm(alpha=alpha):
                return norm(alpha * x + sublayer(x))
