"""Whole ModelConfigs drawn at random: both twins agree. `--architectures N` draws N of them."""

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

from parity.compare import FLOAT64_TOLERANCE
from parity_tests.hostile import ragged_mask, random_mask, tokens
from parity_tests.test_models import model_pair
from transformer_spec import config as spec
from transformer_spec import parameters

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid")
EPS = st.sampled_from([1e-12, 1e-6, 1e-5, 1e-3, 1e-1])


@st.composite
def configs(draw) -> spec.ModelConfig:
    arch = draw(st.sampled_from(["encoder", "decoder", "encoder_decoder"]))
    two, headed = arch == "encoder_decoder", arch != "encoder"
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([None, 2, 3, 5]))
    heads = kv_heads * group
    d_model = draw(st.sampled_from([7, 11, 13])) if head_dim else heads * draw(st.integers(3, 5))
    tied = headed and draw(st.booleans())
    activation = draw(st.sampled_from(ACTIVATIONS))
    return spec.ModelConfig(
        arch=arch,
        vocab_size=draw(st.sampled_from([17, 19, 23])),
        max_seq_len=draw(st.sampled_from([11, 13])),
        d_model=max(d_model, 4),
        d_ff=draw(st.sampled_from([7, 11, 17])),
        num_layers=draw(st.integers(1, 3)),
        num_decoder_layers=draw(st.integers(1, 3)) if two else None,
        num_heads=heads,
        num_kv_heads=draw(st.sampled_from([kv_heads, None])),
        head_dim=head_dim,
        position=draw(st.sampled_from([spec.Sinusoidal(), spec.Learned(), spec.NoPosition()])),
        norm=draw(st.sampled_from([spec.LayerNorm, spec.RMSNorm, spec.StdLayerNorm]))(
            eps=draw(EPS)
        ),
        residual=draw(st.sampled_from([spec.PreNorm(), spec.PostNorm()])),
        ffn=draw(st.sampled_from([spec.FeedForward, spec.GatedFeedForward]))(activation=activation),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        ffn_bias=draw(st.booleans()),
        head_bias=headed and not tied and draw(st.booleans()),
        tie_embeddings=tied,
        share_embeddings=two and draw(st.booleans()),
        scale_embeddings=draw(st.booleans()),
        attention_scale=draw(st.sampled_from([None, 0.2, 0.5])),
    )


@st.composite
def cases(draw) -> tuple[spec.ModelConfig, dict, int]:
    config = draw(configs())
    batch, length, keys = draw(st.integers(1, 3)), draw(st.integers(3, 7)), draw(st.integers(3, 9))
    seed = draw(st.integers(0, 2**16))
    ids = {"seed": seed}
    if config.arch == "encoder_decoder":
        inputs = {
            "source": tokens(config.vocab_size, batch, keys, **ids),
            "target": tokens(config.vocab_size, batch, length, **ids),
        }
        masks = {"source_mask": ragged_mask(batch, keys), "target_mask": ragged_mask(batch, length)}
    else:
        inputs = {"tokens": tokens(config.vocab_size, batch, length, **ids)}
        heads = draw(st.sampled_from([1, config.num_heads]))
        masks = {
            "token_mask": ragged_mask(batch, length),
            "mask": random_mask(batch, heads, length, length, **ids),
        }
    kept = {name: mask for name, mask in masks.items() if draw(st.booleans())}
    return config, inputs | kept, seed


def scores_matter(inputs: dict) -> bool:
    """Whether some query of the masked self-attention weighs two different tokens.

    Where none does, softmax has nothing to weigh, and q and k have no gradient to compare.
    """
    name = "target" if "target" in inputs else "tokens"
    ids = inputs[name]
    batch, length = ids.shape
    seen = np.tri(length, dtype=bool)[None, None]
    seen = seen & inputs.get("mask", True)
    padding = inputs.get("target_mask", inputs.get("token_mask", np.ones_like(ids, bool)))
    seen = np.broadcast_to(seen & padding[:, None, None], (batch, seen.shape[1], length, length))
    return any(
        len(np.unique(ids[row][keys])) > 1
        for row in range(batch)
        for keys in seen[row].reshape(-1, length)
    )


def test_random_architectures(float64, ledger, request, capsys):
    wanted = request.config.getoption("--architectures")
    worst: dict[str, float] = {}
    found: dict[str, spec.ModelConfig] = {}

    @settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(request.config.getoption("--architectures-seed"))
    @given(cases())
    def check(case):
        config, inputs, weights = case
        assume(str(config) not in worst and scores_matter(inputs))
        pair = model_pair(config, inputs, seed=weights)
        shapes = {name: tuple(p.shape) for name, p in pair.torch.named_parameters()}
        assert shapes == parameters.parameter_shapes(config)
        differences = pair.differences()
        ledger("random architectures", differences, tolerance=np.inf)
        top = max(differences, key=lambda d: d.error)
        worst[str(config)] = top.error
        if len(worst) % 100 == 0:
            with capsys.disabled():
                print(f"\n{len(worst)} of {wanted} architectures drawn", end="", flush=True)
        if top.error > FLOAT64_TOLERANCE:
            with capsys.disabled():
                print(f"\n{top}: {config}")
            found[f"{top} {inputs.keys()}"] = config

    check()
    errors = np.array(list(worst.values()))
    report = (
        f"\n{len(errors)} architectures, largest difference {errors.max():.1e}, "
        f"median {np.median(errors):.1e}, {len(found)} disagreements"
    )
    with capsys.disabled():
        print(report)
    assert len(errors) == wanted
    assert not found, f"{len(found)} disagree, the first: {next(iter(found.items()))}"
