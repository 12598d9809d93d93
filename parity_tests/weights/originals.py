"""The classes of transformers on the same weights, and what it opens of ours."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from parity.observe.arrays import to_numpy
from parity_tests.weights.twins import Arrays, at_tokens
from transformer_hub.formats.safetensors_files import SINGLE as SAFETENSORS
from transformer_hub.formats.torch_files import SINGLE as PICKLED
from verification.oracles.float64 import float64_kept

NAMES = {"tokens": "input_ids", "token_mask": "attention_mask", "token_types": "token_type_ids"}
OUTPUTS = {
    "last_hidden_state": "hidden",
    "logits": "logits",
    "prediction_logits": "logits",
    "pooler_output": "pooled",
    "seq_relationship_logits": "next_sentence",
}


def open_model(name: str, directory: Path) -> Any:
    """What a class of transformers opens, in float64, tables that it computes included.

    Its attention is the plain one: no fused kernel.
    """
    cls = getattr(transformers, name)
    stored = cls.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager")
    return in_float64(type(stored), stored.config, stored.state_dict())


def in_float64(cls: Any, config: Any, state: Mapping[str, torch.Tensor]) -> Any:
    """A class of transformers with these weights."""
    with float64_kept("transformers"):
        model = cls(config)
    model.load_state_dict(state)
    return model.eval()


@torch.no_grad()
def run(model: Any, inputs: Arrays) -> Arrays:
    """Outputs and hidden states under our names, at tokens alone, in float64 throughout."""
    given = {NAMES[name]: torch.tensor(array).long() for name, array in inputs.items()}
    with float64_kept("transformers"):
        out = model(**given, output_hidden_states=True)
    found = {ours: out[theirs] for theirs, ours in OUTPUTS.items() if theirs in out}
    stack = "encoder" if model.config.model_type == "bert" else "decoder"
    *entering, end = out.hidden_states
    found |= {f"{stack} {i}": hidden for i, hidden in enumerate(entering)}
    found |= {f"{stack} end": end} | ({"hidden": end} if stack == "encoder" else {})
    return at_tokens({name: to_numpy(value) for name, value in found.items()}, inputs)


def same_bits(found: Arrays, expected: Arrays) -> None:
    """Every value equal to the last bit: the same code on the same weights."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def stored_digests(directory: Path) -> dict[str, str]:
    """Shape, dtype and SHA-256 of every tensor of a directory, read without our readers."""
    if (directory / SAFETENSORS).exists():
        from safetensors.torch import load_file

        state = load_file(directory / SAFETENSORS)
    else:
        state = torch.load(directory / PICKLED, map_location="cpu", weights_only=True)
    return {name: digest(to_numpy(tensor)) for name, tensor in state.items()}


def digest(array: np.ndarray) -> str:
    """Shape, dtype and SHA-256 of an array."""
    content = hashlib.sha256(array.tobytes()).hexdigest()
    return f"{array.dtype} {array.shape} {content}"
