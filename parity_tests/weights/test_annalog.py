"""The encoder-decoder of the 2017 paper, trained to rewrite molecules (ANNalog)."""

import pickletools
import re

import pytest
import torch
from torch import nn

from parity.observe.arrays import to_numpy
from parity_tests.weights.archives import Archive
from parity_tests.weights.padding import padded
from parity_tests.weights.twins import PublishedTwins, at_tokens, low_precision, worst
from transformer_spec.config import FeedForward, LayerNorm, Learned, ModelConfig, PostNorm
from transformer_spec.naming import check_named
from transformer_spec.parameters import count, parameter_shapes

TITLE = "encoder-decoder of 2017 (ANNalog)"
ARCHIVE = Archive(
    "annalog==1.0.6",
    "annalog-1.0.6-py3-none-any.whl",
    "49cf13abf67b5cfed1b8b9071bfebe357964583ea1e22d6ed17a1310deaf54d8",
)
FOLDER = "annalog/ckpt_and_vocab"
WEIGHTS, WORDS = "Lev_extended.pt", "stereo_experiment_vocab_ttf.pkl"
CONFIG = ModelConfig(
    arch="encoder_decoder",
    vocab_size=59,
    max_seq_len=102,
    d_model=256,
    d_ff=512,
    num_layers=3,
    num_decoder_layers=3,
    num_heads=8,
    position=Learned(),
    norm=LayerNorm(eps=1e-5),
    residual=PostNorm(),
    ffn=FeedForward(activation="relu"),
    qkv_bias=True,
    out_bias=True,
    ffn_bias=True,
    head_bias=True,
    scale_embeddings=True,
)
# Their part of a name -> ours.
OURS = {
    "tok_embedding": "embed",
    "pos_embedding": "pos_embed",
    "self_attention": "attn",
    "encoder_attention": "cross_attn",
    "positionwise_feedforward": "ffn",
    "self_attn_layer_norm": "attn_norm",
    "enc_attn_layer_norm": "cross_norm",
    "ff_layer_norm": "ffn_norm",
    "fc_q": "q_proj",
    "fc_k": "k_proj",
    "fc_v": "v_proj",
    "fc_o": "o_proj",
    "fc_1": "up_proj",
    "fc_2": "down_proj",
}
ASPIRIN, CAFFEINE = "CC(=O)Oc1ccccc1C(=O)O", "Cn1c(=O)c2c(ncn2C)n(C)c1=O"
# A bracketed atom, a two-digit ring bond, a two-letter element, or one character.
TOKEN = re.compile(r"\[[^\]]*\]|%\d\d|Br|Cl|.")
# What a pickle of strings, numbers, lists and dictionaries is made of: nothing that can be called.
PLAIN = {
    *("PROTO", "FRAME", "MEMOIZE", "MARK", "BINGET", "STOP", "EMPTY_DICT", "EMPTY_LIST"),
    *("APPENDS", "SETITEMS", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2"),
}

pytestmark = [
    pytest.mark.weights,
    pytest.mark.xdist_group("annalog"),
    pytest.mark.usefixtures("float64"),
]


def words(path):
    """The list under `itos` of a pickled dictionary, whose program is read and not run."""
    program = [(code.name, value) for code, value, _ in pickletools.genops(path.read_bytes())]
    assert {name for name, _ in program} <= PLAIN
    start = program.index(("SHORT_BINUNICODE", "itos"))
    end = program.index(("APPENDS", None), start)
    return [value for name, value in program[start + 1 : end] if name == "SHORT_BINUNICODE"]


def our_name(theirs: str) -> str:
    if theirs.startswith("decoder.fc_out."):
        return theirs.replace("decoder.fc_out", "lm_head")
    return ".".join(OURS.get(part, part) for part in theirs.split("."))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("annalog")
    ARCHIVE.unpack({name: f"{FOLDER}/{name}" for name in (WEIGHTS, WORDS)}, directory)
    return directory


@pytest.fixture(scope="module")
def vocabulary(directory):
    return words(directory / WORDS)


@pytest.fixture(scope="module")
def state(directory):
    return torch.load(directory / WEIGHTS, map_location="cpu", weights_only=True)


@pytest.fixture(scope="module")
def named(state):
    return {our_name(name): to_numpy(tensor) for name, tensor in state.items()}


@pytest.fixture(scope="module")
def twins(named):
    return PublishedTwins(CONFIG, named, "float64")


@pytest.fixture(scope="module")
def inputs(vocabulary):
    """Aspirin and caffeine, to be written again."""
    number = {word: i for i, word in enumerate(vocabulary)}
    rows = [
        [number[word] for word in ("<sos>", *TOKEN.findall(molecule), "<eos>")]
        for molecule in (ASPIRIN, CAFFEINE)
    ]
    source, source_mask = padded(rows, number["<pad>"])
    target, target_mask = padded([row[:-1] for row in rows], number["<pad>"])
    masks = {"source_mask": source_mask, "target_mask": target_mask}
    return {"source": source, "target": target} | masks


@pytest.fixture(scope="module")
def ours(twins, inputs):
    return twins.run_flax(inputs), twins.run_torch(inputs)


def test_all_parameters_are_there(named, vocabulary):
    check_named(named, parameter_shapes(CONFIG))
    assert count(CONFIG) == 4_051_259
    assert len(vocabulary) == len(set(vocabulary)) == CONFIG.vocab_size


def test_the_twins_agree(ours, figure):
    figure(TITLE, "twins, float64", f"{worst(*ours):.1e}")


def test_float32_is_within_tolerance(named, inputs, ours, figure):
    errors = low_precision(PublishedTwins(CONFIG, named, "float32"), inputs, ours[1])
    figure(TITLE, "float32: flax / torch", " / ".join(f"{error:.1e}" for error in errors))


def test_torchs_own_layers_agree(state, inputs, ours, figure):
    """Their names, straight into `nn.TransformerEncoderLayer` and `nn.TransformerDecoderLayer`."""
    expected = at_tokens(torchs_own(state, inputs), inputs)
    figure(TITLE, "original, float64", f"{max(worst(found, expected) for found in ours):.1e}")


def test_molecules_are_copied(twins, inputs, vocabulary, figure):
    source = {name: inputs[name] for name in ("source", "source_mask")}
    begin = {"target": inputs["target"][:, :1]}
    for written in twins.greedy(source | begin, inputs["source"].shape[1]):
        texts = ["".join(vocabulary[i] for i in row[1:]) for row in written]
        assert [text.partition("<eos>")[0] for text in texts] == [ASPIRIN, CAFFEINE]
        assert all("<eos>" in text for text in texts)
    figure(TITLE, "known answer", "copies aspirin and caffeine")


def torchs_own(state, inputs):
    """Hidden states and logits of a padded batch by torch's layers, in float64."""
    tensors = {name: torch.tensor(array) for name, array in inputs.items()}
    state = {name: tensor.double() for name, tensor in state.items()}
    hidden, found = {}, {}
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        ids, padding = tensors[side].long(), ~tensors[f"{side}_mask"]
        x = state[f"{stack}.tok_embedding.weight"][ids] * CONFIG.d_model**0.5
        x = x + state[f"{stack}.pos_embedding.weight"][: ids.shape[1]]
        for i in range(CONFIG.num_layers):
            found[f"{stack} {i}"] = x
            layer = torchs_layer(state, f"{stack}.layers.{i}.")
            if stack == "encoder":
                x = layer(x, src_key_padding_mask=padding)
                continue
            later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            x = layer(
                x,
                hidden["encoder"],
                tgt_mask=later,
                tgt_key_padding_mask=padding,
                memory_key_padding_mask=~tensors["source_mask"],
            )
        hidden[stack] = found[f"{stack} end"] = x
    logits = x @ state["decoder.fc_out.weight"].T + state["decoder.fc_out.bias"]
    return {name: to_numpy(value) for name, value in (found | {"logits": logits}).items()}


def torchs_layer(state, prefix):
    """One layer of torch with the weights under a prefix; post-norm and ReLU are its defaults."""
    own = {name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)}
    cross = "encoder_attention.fc_q.weight" in own
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(CONFIG.d_model, CONFIG.num_heads, CONFIG.d_ff, dropout=0.0, batch_first=True)
    norms = ["self_attn", "enc_attn", "ff"] if cross else ["self_attn", "ff"]
    given = {}
    for leaf in ("weight", "bias"):
        for attention, theirs in [
            ("self_attn", "self_attention"),
            ("multihead_attn", "encoder_attention"),
        ][: 1 + cross]:
            parts = [own[f"{theirs}.fc_{part}.{leaf}"] for part in "qkv"]
            given[f"{attention}.in_proj_{leaf}"] = torch.cat(parts)
            given[f"{attention}.out_proj.{leaf}"] = own[f"{theirs}.fc_o.{leaf}"]
        for number, norm in enumerate(norms, start=1):
            given[f"norm{number}.{leaf}"] = own[f"{norm}_layer_norm.{leaf}"]
        for number in (1, 2):
            given[f"linear{number}.{leaf}"] = own[f"positionwise_feedforward.fc_{number}.{leaf}"]
    layer.double().load_state_dict(given)
    return layer
