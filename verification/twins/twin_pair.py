"""Our own twins of one config, on weights under which mistakes show."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from parity.observe import weights
from parity.observe.flax_side import FlaxSide
from parity.observe.torch_side import TorchSide
from transformer_spec import naming, parameters
from transformer_spec.config import ModelConfig
from verification.twins import chunked
from verification.twins.weights import hostile_parameters, off_the_kink, usual_parameters

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class TwinPair:
    """The Flax side of a case, built once; and its torch twin, built anew with every bug."""

    config: ModelConfig
    inputs: Inputs
    seed: int = 0
    chunks: chunked.Chunks = ()

    def params(self, kink: bool = True) -> dict[str, Any]:
        """Hostile weights; without the kink, such that no ReLU is near 0 (low precision)."""
        shapes = parameters.parameter_shapes(self.config)
        named = hostile_parameters(shapes, self.seed, self.config.embedding_scale)
        return self._tree(named if kink else off_the_kink(self.config, named))

    def usual_params(self) -> dict[str, Any]:
        """As initialized."""
        shapes = parameters.parameter_shapes(self.config)
        return self._tree(usual_parameters(shapes, self.seed, self.config.norm_start))

    def flax(
        self, params: dict, dtype: str, options: dict | None = None, gradients: bool = True
    ) -> FlaxSide:
        cast = jax.tree.map(lambda x: jnp.asarray(x, dtype), params)
        model = chunked.flax_model(self.config, self.chunks)
        return FlaxSide(model, cast, self.inputs, options, gradients=gradients)

    def torch(self, params: dict, dtype: str, training: bool = False) -> TorchSide:
        """The twin with the parameters copied; they cross in float64, or in float32."""
        wide = torch.float64 if dtype == "float64" else torch.float32
        model = chunked.torch_model(self.config, self.chunks).to(wide)
        rounded = jax.tree.map(lambda x: np.asarray(jnp.asarray(x, dtype), _numpy(wide)), params)
        weights.weights_to_torch(rounded, model)
        return TorchSide(model.to(getattr(torch, dtype)).train(training), self.inputs)

    def _tree(self, named: dict[str, np.ndarray]) -> dict[str, Any]:
        model = chunked.flax_model(self.config, self.chunks)
        arrays: dict[str, Any] = {name: jnp.asarray(x) for name, x in self.inputs.items()}
        shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), **arrays))
        return naming.from_named(named, shapes["params"])

    def sizes(self) -> dict[str, float]:
        """The numbers that a wrong constant is most often made of."""
        c = self.config
        return {
            "head_dim": c.head_size,
            "d_model": c.d_model,
            "num_heads": c.num_heads,
            "d_model / num_heads": c.d_model // c.num_heads,
            "d_ff": c.d_ff,
        }


def _numpy(dtype: torch.dtype) -> type:
    return np.float64 if dtype == torch.float64 else np.float32
