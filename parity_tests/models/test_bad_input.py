"""What a model refuses: one ValueError that names the argument, the same in both twins."""

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import flax_transformer
import torch_reference
from parity_tests.models.test_models import model_pair
from verification.twins.hostile import hostile_config, tokens
from verification.twins.pair import tensors

OK = tokens(23, 2, 5)
LONG = tokens(23, 2, 14)
TRUE = np.ones((2, 5), bool)
DECODER = hostile_config()
TWO = hostile_config(arch="encoder_decoder", num_decoder_layers=2)


@pytest.fixture(autouse=True)
def no_annotation_checks():
    """The run-time checks of annotations would speak before the models do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


CASES = [
    (DECODER, {"tokens": LONG}, "tokens: length 14 is not usable; max_seq_len is 13"),
    (DECODER, {"tokens": OK + 23}, r"tokens: ids \d+\.\.\d+ are not usable; .* in \[0, 23\)"),
    (DECODER, {"tokens": OK - 23}, r"tokens: ids -\d+\.\.-\d+ are not usable"),
    (DECODER, {"tokens": OK.astype(float)}, "tokens: dtype float64 .* integer"),
    (DECODER, {"tokens": OK[0]}, r"tokens: shape \(5,\) .* \[B, T\]"),
    (DECODER, {"tokens": OK[:, :0]}, r"tokens: shape \(2, 0\)"),
    (DECODER, {"tokens": OK, "token_mask": TRUE[:, :4]}, r"token_mask: shape \(2, 4\)"),
    (DECODER, {"tokens": OK, "token_mask": TRUE.astype(float)}, "token_mask: dtype float64"),
    (DECODER, {"tokens": OK, "mask": TRUE}, r"mask: shape \(2, 5\) does not broadcast"),
    (DECODER, {"tokens": OK, "mask": np.ones((2, 1, 5, 6), bool)}, r"mask: shape \(2, 1, 5, 6\)"),
    (DECODER, {"tokens": OK, "mask": np.ones((2, 1, 5, 5))}, "mask: dtype float64"),
    (DECODER, {"tokens": OK, "positions": OK + 13}, r"positions: ids .* in \[0, 13\)"),
    (DECODER, {"tokens": OK, "positions": OK * 0.5}, "positions: dtype float64"),
    (TWO, {"source": LONG, "target": OK}, "source: length 14"),
    (TWO, {"source": OK, "target": LONG}, "target: length 14"),
    (TWO, {"source": OK, "target": OK + 23}, "target: ids"),
    (TWO, {"source": OK, "target": OK, "source_mask": TRUE[:, 1:]}, "source_mask: shape"),
    (
        TWO,
        {"source": OK, "target": OK, "target_mask": TRUE.astype(int)},
        "target_mask: dtype int64",
    ),
]


@pytest.mark.parametrize(("config", "inputs", "message"), CASES, ids=[c[2] for c in CASES])
def test_both_twins_refuse_it_by_name(float64, config, inputs, message):
    good = {"source": OK, "target": OK} if config is TWO else {"tokens": OK}
    pair = model_pair(config, good)
    with pytest.raises(ValueError, match=message) as ours:
        pair.call_flax(pair.params, **{k: jnp.asarray(v) for k, v in inputs.items()})
    with pytest.raises(ValueError, match=message) as theirs:
        pair.call_torch(**tensors(inputs))
    assert str(ours.value).splitlines()[0] == str(theirs.value)


def test_the_twins_share_their_public_names():
    assert flax_transformer.__all__ == torch_reference.__all__
