"""One layer of a stack: attention, optional cross-attention, feed-forward, each in a residual."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from torch_reference.attention import Attention
from torch_reference.dropout import Dropout
from torch_reference.feed_forward import make_ffn
from torch_reference.norms import make_norm
from transformer_spec.config import ModelConfig, PostNorm, PreNorm


class Block(nn.Module):
    """Pre-norm: x + drop(f(norm(x))). Post-norm: norm(x + drop(f(x))). f: each sublayer in turn.

    Args:
        config: sizes and slots.
        cross_attention: whether a sublayer that attends to the encoder stands in the middle.
    Source: Vaswani et al. 2017, section 3.1 (post-norm) and 5.4 (dropout on the output of each
    sublayer, before it is added); Xiong et al. 2020 (pre-norm).
    """

    def __init__(self, config: ModelConfig, cross_attention: bool = False):
        super().__init__()
        self.config = c = config
        self.cross_attention = cross_attention
        self.attn_norm = make_norm(c)
        self.attn = Attention(c)
        if cross_attention:
            self.cross_norm = make_norm(c)
            self.cross_attn = Attention(c)
        self.ffn_norm = make_norm(c)
        self.ffn = make_ffn(c)
        self.attn_out_dropout = Dropout(c.attn_out_dropout)
        self.ffn_out_dropout = Dropout(c.ffn_out_dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "..."] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T D"]:
        def attend(h):
            out, _ = self.attn(h, None, mask)
            return self.attn_out_dropout(out)

        def attend_to_memory(h):
            out, _ = self.cross_attn(h, memory, memory_mask)
            return self.attn_out_dropout(out)

        def feed_forward(h):
            return self.ffn_out_dropout(self.ffn(h))

        x = self._residual(x, self.attn_norm, attend)
        if self.cross_attention:
            x = self._residual(x, self.cross_norm, attend_to_memory)
        return self._residual(x, self.ffn_norm, feed_forward)

    def _residual(self, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        match self.config.residual:
            case PreNorm():
                return x + sublayer(norm(x))
            case PostNorm():
                return norm(x + sublayer(x))
