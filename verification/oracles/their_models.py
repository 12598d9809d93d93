"""A class of transformers under observation: built from its config, filled with weights, run."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from parity.observe.arrays import to_numpy
from parity.observe.points import probe_weights
from parity.observe.settings import NotComparableError
from transformer_hub import families
from transformer_spec.config import ModelConfig
from verification.oracles.cases import Batch, Case
from verification.oracles.float64 import float64_kept

Arrays = dict[str, np.ndarray]

_NAMES = {
    "tokens": "input_ids",
    "token_mask": "attention_mask",
    "token_types": "token_type_ids",
    "source": "input_ids",
    "source_mask": "attention_mask",
    "target_mask": "decoder_attention_mask",
    "labels": "labels",
    "sentence_labels": "next_sentence_label",
}
_OUTPUTS = {
    "logits": "logits",
    "prediction_logits": "logits",
    "pooler_output": "pooled",
    "seq_relationship_logits": "next_sentence",
}
# Classes whose order enters through distances alone.
_WITHOUT_POSITIONS = ("BloomForCausalLM", "T5ForConditionalGeneration")


def bloom_gelu(x: Tensor) -> Tensor:
    """x Phi(x) in its tanh form."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# Constants that they cut short: what is said of each, their function, and the one put in its place.
CUT_SHORT = {
    "sqrt(2 / pi) as 0.79788456, in BloomGelu and its backward": (
        "transformers.models.bloom.modeling_bloom.GeLUFunction.apply",
        bloom_gelu,
    )
}


@contextmanager
def exact_constants(names: Collection[str]) -> Iterator[None]:
    """Their code with these constants of `CUT_SHORT` to all digits."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(*CUT_SHORT[name]))
        yield


@dataclass
class Oracle:
    """One of their models, and where our parameters are in it.

    Args:
        places: our name -> the place of each element in their parameters, laid end to end.
        islands: where their code asked for float32, though the model is in float64.
    """

    case: Case
    family: str
    config: ModelConfig
    model: Any
    places: dict[str, np.ndarray]
    islands: set[str] = field(default_factory=set)

    def fill(self, named: Mapping[str, np.ndarray]) -> None:
        """Put our parameters into their model."""
        flat = np.empty(_size(self.model))
        for name, place in self.places.items():
            flat[place] = named[name]
        _fill(self.model, flat)

    def run(self, batch: Batch, exact: Collection[str] = CUT_SHORT.keys()) -> Arrays:
        """As `run_as_it_is`, in float64 throughout, with these of `CUT_SHORT` to all digits."""
        with float64_kept("transformers") as islands, exact_constants(exact):
            found = self.run_as_it_is(batch)
        self.islands |= islands
        return found

    def run_as_it_is(self, batch: Batch) -> Arrays:
        """Outputs, hidden states and the loss as `output.*`, its gradients as `parameter.*`."""
        out = self.model(**_arguments(self.case, batch), output_hidden_states=True)
        loss = out.loss if "labels" in batch else _weighted(out, batch)
        parameters = list(self.model.parameters())
        # The weight that the recorders of our twins give a single output.
        gradients = torch.autograd.grad(probe_weights([()])[0].item() * loss, parameters)
        flat = np.concatenate([to_numpy(gradient).ravel() for gradient in gradients])
        found = {"loss": loss} | dict(_outputs(out, self.config, batch))
        outputs = {f"output.{name}": to_numpy(value) for name, value in found.items()}
        return outputs | {f"parameter.{name}": flat[at] for name, at in self.places.items()}


def build(case: Case) -> Oracle:
    """The model in float64, tables that are computed at construction included.

    Raises:
        NotComparableError: see `build_as_it_is`.
    """
    with float64_kept("transformers") as islands:
        oracle = build_as_it_is(case, "float64")
    oracle.islands |= islands
    return oracle


def build_as_it_is(case: Case, dtype: str) -> Oracle:
    """The model in evaluation mode, with plain attention: no fused kernel.

    Raises:
        NotComparableError: transformers is not installed, or our parameters are not exactly theirs.
    """
    cls = getattr(_transformers(), case.architecture)
    settings = cls.config_class(**case.settings, attn_implementation="eager")
    settings._experts_implementation = "eager"
    model = cls(settings)
    if case.own_head:
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    model = model.to(getattr(torch, dtype)).eval()
    described = settings.to_dict() | {"architectures": [case.architecture]}
    family = families.find(described)
    config = family.read_config(described, dict(model.named_parameters()))
    return Oracle(case, family.name, config, model, _places(model, family.layout(config)))


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        line = "pip install 'transformers>=5'"
        raise NotComparableError(f"transformers is not installed; run: {line}") from None
    return transformers


@dataclass(frozen=True)
class _Tensor:
    """A tensor as a layout reads it."""

    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def read(self) -> np.ndarray:
        return self.array


def _places(model: nn.Module, layout: families.Layout) -> dict[str, np.ndarray]:
    """Every element of theirs is given its number, and read as a checkpoint is."""
    size, start, numbered = _size(model), 0, {}
    for name, parameter in model.named_parameters():
        numbers = np.arange(start, start + parameter.numel())
        numbered[name] = _Tensor(numbers.reshape(tuple(parameter.shape)))
        start += parameter.numel()
    stored = {name: numbered[given] for name, given in layout.canonical(numbered).items()}
    places = dict(layout.to_ours(stored))
    found = np.sort(np.concatenate([place.ravel() for place in places.values()]))
    if not np.array_equal(found, np.arange(size)):
        fault = "some element of their parameters is none of ours, or two of ours"
        raise NotComparableError(f"{type(model).__name__}: {fault}")
    return places


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def _fill(model: nn.Module, flat: np.ndarray) -> None:
    start = 0
    for parameter in model.parameters():
        values = flat[start : start + parameter.numel()].reshape(tuple(parameter.shape))
        parameter.copy_(torch.from_numpy(values))
        start += parameter.numel()


def _arguments(case: Case, batch: Batch) -> dict[str, Tensor]:
    given = {_NAMES[k]: torch.tensor(v).long() for k, v in batch.items() if k in _NAMES}
    if case.architecture not in _WITHOUT_POSITIONS:
        # Each token's number among the tokens of its row; by themselves theirs count padding.
        given["position_ids"] = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return given


def _outputs(out: Any, config: ModelConfig, batch: Batch) -> Iterator[tuple[str, Tensor]]:
    """What they give at tokens. A stack's last hidden state has been through its last norm."""
    two = config.arch == "encoder_decoder"
    keep = torch.tensor(batch["target_mask" if two else "token_mask"])
    for theirs, ours in _OUTPUTS.items():
        if theirs in out:
            yield ours, out[theirs][keep] if ours == "logits" else out[theirs]
    stacks = {config.arch: (out.hidden_states, keep)} if not two else {}
    if two:
        stacks["encoder"] = out.encoder_hidden_states, torch.tensor(batch["source_mask"])
        stacks["decoder"] = out.decoder_hidden_states, keep
    for stack, (states, mask) in stacks.items():
        for i, hidden in enumerate(states):
            yield f"{stack} {i}", hidden[mask]


def _weighted(out: Any, batch: Batch) -> Tensor:
    """In the place of a loss, where a class has none."""
    hidden, pooled = out.last_hidden_state, out.pooler_output
    weights = [
        torch.tensor(batch[name]).to(hidden) for name in ("hidden_weights", "pooled_weights")
    ]
    return (weights[0] * hidden).sum() + (weights[1] * pooled).sum()
