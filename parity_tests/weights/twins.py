"""Both twins on published weights, observed: outputs and every hidden state."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import torch

import flax_transformer
import torch_reference
from flax_transformer import decoding as flax_decoding
from flax_transformer.training import parameter_template
from parity.judge import precision
from parity.judge.errors import FLOAT64_TOLERANCE, differences
from parity.observe.flax_side import FlaxSide
from parity.observe.points import Recording
from parity.observe.torch_side import TorchSide
from torch_reference import decoding as torch_decoding
from transformer_spec import naming
from transformer_spec.config import ModelConfig
from verification.low_precision import ErrorPair
from verification.twins import roundings
from verification.twins.pair import tensors, torch_device

Arrays = dict[str, np.ndarray]


class PublishedTwins:
    """A Linen model and its torch twin with the same weights, in one dtype.

    Args:
        named: every parameter by our name; numbers that the dtype holds.
    """

    def __init__(self, config: ModelConfig, named: Arrays, dtype: str):
        self.config = config
        cast = {name: array.astype(dtype) for name, array in named.items()}
        model = torch_reference.build_model(config)
        # Parameters that are the arrays themselves, where they are on one device: no third copy.
        shared = {name: torch.from_numpy(array) for name, array in cast.items()}
        model.load_state_dict(shared, assign=True)
        self.torch = model.to(torch_device(), getattr(torch, dtype)).eval()
        self.flax = flax_transformer.build_model(config)
        tree = naming.from_named(cast, parameter_template(self.flax))
        self.params = jax.tree.map(jnp.asarray, tree)

    def run_flax(self, inputs: Arrays) -> Arrays:
        """Outputs and hidden states by name, at tokens alone."""
        side = FlaxSide(self.flax, self.params, inputs, gradients=False)
        return _values(side.record().require_finished(), self.config, inputs)

    def run_torch(self, inputs: Arrays) -> Arrays:
        """The same."""
        side = TorchSide(self.torch, inputs, gradients=False)
        return _values(side.record().require_finished(), self.config, inputs)

    def greedy(self, inputs: Arrays, num_tokens: int) -> tuple[list[list[int]], list[list[int]]]:
        """What each twin writes after the prefix in `inputs`, which is part of it."""
        arrays = {name: jnp.asarray(array) for name, array in inputs.items()}
        flax = flax_decoding.greedy(self.flax, self.params, arrays, num_tokens)
        ours = torch_decoding.greedy(self.torch, tensors(inputs), num_tokens)
        return np.asarray(flax).tolist(), ours.tolist()


def _values(run: Recording, config: ModelConfig, inputs: Arrays) -> Arrays:
    found = dict(zip(_heads(config), run.observed["", "output"].arrays, strict=True))
    stacks = ("encoder", "decoder") if config.arch == "encoder_decoder" else (config.arch,)
    for (name, kind), passed in run.observed.items():
        layer = re.fullmatch(r"(encoder|decoder)\.layers\.(\d+)", name)
        if layer and kind == "input":
            found[f"{layer[1]} {layer[2]}"] = passed.arrays[0]
        elif name in stacks and kind == "output":
            found[f"{name} end"] = passed.arrays[0]
    return at_tokens(found, inputs)


def _heads(config: ModelConfig) -> list[str]:
    """What the model gives, in order."""
    if config.arch != "encoder":
        return ["logits"]
    heads = {
        "logits": config.masked_lm,
        "pooled": config.pooler,
        "next_sentence": config.next_sentence,
    }
    return ["hidden", *(name for name, there in heads.items() if there)]


def at_tokens(found: Arrays, inputs: Arrays) -> Arrays:
    """Values of single tokens without those of padding, which need not agree."""

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        if name in ("pooled", "next_sentence"):
            return value
        mask = "source_mask" if name.startswith("encoder") else "target_mask"
        return value[inputs["token_mask" if "token_mask" in inputs else mask]]

    return {name: keep(name, value) for name, value in found.items()}


def worst(ours: Arrays, theirs: Arrays) -> float:
    """The largest norm-wise difference of outputs and hidden states; above 1e-12 it fails."""
    largest = max(differences(ours, theirs), key=lambda difference: difference.error)
    assert largest.error <= FLOAT64_TOLERANCE, largest
    return largest.error


def low_precision(twins: PublishedTwins, inputs: Arrays, truth: Arrays) -> tuple[float, float]:
    """Each twin's largest error in float32, of which neither may exceed twice the other's."""
    keys = max(array.shape[1] for array in inputs.values())
    floor = precision.rounding_floor("float32", roundings.model(twins.config, keys))
    pairs = zip(
        differences(twins.run_flax(inputs), truth),
        differences(twins.run_torch(inputs), truth),
        strict=True,
    )
    rows = [ErrorPair(a.name, a.error, b.error, floor) for a, b in pairs]
    outside = [row for row in rows if not row.within_tolerance]
    assert not outside, outside
    return max(row.flax for row in rows), max(row.torch for row in rows)
