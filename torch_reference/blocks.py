"""One layer of a stack: attention, optional cross-attention, feed-forward, each in a residual."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from torch_reference.attention import Attention
from torch_reference.cache import LayerCache
from torch_reference.dropout import Dropout
from torch_reference.moe import make_ffn
from torch_reference.norms import make_norm
from torch_reference.positions import Rotation
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

    def __init__(self, config: ModelConfig, cross_attention: bool = False):
        super().__init__()
        self.config = c = config
        self.cross_attention = cross_attention
        self.attn_norm = make_norm(c.norm, c.d_model)
        self.attn = Attention(c)
        if cross_attention:
            self.cross_norm = make_norm(c.norm, c.d_model)
            self.cross_attn = Attention(c)
        self.ffn_norm = make_norm(c.norm, c.d_model)
        self.ffn = make_ffn(c)
        sandwich = isinstance(c.residual, SandwichNorm)
        self.attn_out_norm = make_norm(c.norm, c.d_model) if sandwich else None
        self.cross_out_norm = make_norm(c.norm, c.d_model) if sandwich and cross_attention else None
        self.ffn_out_norm = make_norm(c.norm, c.d_model) if sandwich else None
        self.attn_out_dropout = Dropout(c.attn_out_dropout)
        if cross_attention:
            self.cross_out_dropout = Dropout(c.attn_out_dropout)
        self.ffn_out_dropout = Dropout(c.ffn_out_dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "..."] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
        rotation: Rotation | None = None,
        bias: Float[Tensor, "..."] | None = None,
        cache: LayerCache | None = None,
    ) -> tuple[Float[Tensor, "B T D"], LayerCache | None]:
        """The output, and the layer's cache with these tokens appended, where there is one.

        A pure function of its arguments: blocks can be scanned over, or recomputed backward.
        """

        def attend(h):
            nonlocal cache
            out, _, cache = self.attn(h, None, mask, rotation, bias, cache)
            return self.attn_out_dropout(out)

        def attend_to_memory(h):
            out, _, _ = self.cross_attn(h, memory, memory_mask)
            return self.cross_out_dropout(out)

        def feed_forward(h):
            return self.ffn_out_dropout(self.ffn(h))

        x = self._residual(x, self.attn_norm, attend, self.attn_out_norm)
        if self.cross_attention:
            x = self._residual(x, self.cross_norm, attend_to_memory, self.cross_out_norm)
        x = self._residual(x, self.ffn_norm, feed_forward, self.ffn_out_norm)
        return x, cache

    def _residual(
        self,
        x: Tensor,
        norm: nn.Module,
        sublayer: Callable[[Tensor], Tensor],
        out_norm: nn.Module | None,
    ) -> Tensor:
        match self.config.residual:
            case PreNorm() | SandwichNorm():
                out = sublayer(norm(x))
                return x + (out if out_norm is None else out_norm(out))
            case PostNorm():
                return norm(x + sublayer(x))
            case DeepNorm(alpha=alpha):
                return norm(alpha * x + sublayer(x))
