"""Mistakes in the wiring of blocks and of encoder and decoder."""

from collections.abc import Callable
from functools import partial, wraps

from torch import Tensor, nn

from torch_reference.blocks import Block
from torch_reference.cache import KVCache
from torch_reference.stacks import Decoder
from verification.bugs.seeded_bug import SeededBug, swapped

Read = tuple[Tensor, KVCache | None]

_residual = Block._residual
_decode = Decoder.forward


def _norm_on_branch(
    self: Block, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor], out_norm: None
) -> Tensor:
    return x + norm(sublayer(x))


def _first_norm_again(
    self: Block, x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor], out_norm: None
) -> Tensor:
    return _residual(self, x, self.attn_norm if norm is self.ffn_norm else norm, sublayer, out_norm)


@wraps(_decode)
def _masked_as_target(self: Decoder, tokens: Tensor, token_mask=None, *args, **kwargs) -> Read:
    return _decode(self, tokens, token_mask, *args, **kwargs | {"memory_token_mask": token_mask})


BUGS = (
    SeededBug(
        id="BLK-02",
        name="Post-norm inside the branch",
        component="block",
        sources=(
            "https://github.com/mashrurmorshed/Torch-KWT/issues/13",
            "https://github.com/NVIDIA-NeMo/Speech/pull/4350",
        ),
        how="A post-norm block computes x + norm(f(x)), not norm(x + f(x)).",
        case="post",
        at="decoder.layers.0",
        cause=r"is attn\[0\], where the reference is x \+ attn\[0\]",
        install=partial(swapped, Block, "_residual", _norm_on_branch),
    ),
    SeededBug(
        id="BLK-03",
        name="One norm for two sublayers",
        component="block",
        sources=(),
        how="The feed-forward branch goes through attn_norm; ffn_norm is never used.",
        case="decoder",
        at="decoder.layers.0",
        cause="ffn_norm is never called; .*attn_norm@2 is called instead",
        install=partial(swapped, Block, "_residual", _first_norm_again),
    ),
    SeededBug(
        id="ENC-01",
        name="Cross-attention masked by the target's padding",
        component="encoder-decoder",
        sources=(
            "https://github.com/keras-team/keras-io/issues/1964",
            "https://github.com/Kamichanw/SeekDeeper/issues/3",
        ),
        how="The decoder hides memory where its own tokens, not the source's, are padding.",
        case="encoder_decoder",
        at="decoder",
        cause="padding of token_mask, where .* memory_token_mask",
        install=partial(swapped, Decoder, "forward", _masked_as_target),
    ),
)
