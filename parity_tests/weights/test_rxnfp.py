"""BERT with both heads, trained on chemical reactions (Schwaller et al. 2021, package rxnfp)."""

import re
import zipfile
from typing import ClassVar

import numpy as np
import pytest

from parity_tests.weights.archives import Archive
from parity_tests.weights.padding import padded
from parity_tests.weights.published_model import PublishedModel

FOLDER = "rxnfp/models/transformers/bert_pretrained"
# The package's own tokens: what is in brackets, two-letter elements, two-digit rings, characters.
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|.")
# Acetic acid and ethanol to ethyl acetate.
ESTERIFICATION = "CC(=O)O.OCC>>CC(=O)OCC"


def vocabulary_of(directory):
    lines = (directory / "vocab.txt").read_text().splitlines()
    return {token: number for number, token in enumerate(lines)}


def ids_of(directory, reaction):
    vocabulary = vocabulary_of(directory)
    return [vocabulary[token] for token in ("[CLS]", *TOKEN.findall(reaction), "[SEP]")]


@pytest.mark.xdist_group("rxnfp")
class TestRxnfp(PublishedModel):
    title = "BERT, both heads (rxnfp)"
    archive = Archive(
        "rxnfp==0.1.0",
        "rxnfp-0.1.0-py3-none-any.whl",
        "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
    )
    members: ClassVar = {
        name: f"{FOLDER}/{name}" for name in ("config.json", "pytorch_model.bin", "vocab.txt")
    }
    parameters = 6_741_841
    original, auto = "BertForPreTraining", "AutoModelForPreTraining"
    # The class keeps its pooler's output to itself; it is seen through the sentence head.
    unseen = frozenset({"pooled"})
    repeated = frozenset({"cls.predictions.decoder.weight"})

    @classmethod
    def inputs(cls, directory):
        """The example of the package's description and a short one, products as a second text."""
        with zipfile.ZipFile(cls.archive.fetch()) as archive:
            description = archive.read("rxnfp-0.1.0.dist-info/METADATA").decode()
        (example,) = re.findall(r'example_rxn = "(.*)"', description)
        rows = [ids_of(directory, text) for text in (example, ESTERIFICATION)]
        ids, keep = padded(rows)
        arrow = vocabulary_of(directory)[">>"]
        types = (np.cumsum(ids == arrow, axis=1) > 0) & keep
        return {"tokens": ids, "token_mask": keep, "token_types": types.astype(np.int32)}

    def test_masked_tokens_are_found(self, opened, in_float32, figure):
        """Each token in turn behind [MASK]: 15 of 21 come first."""
        ids = ids_of(opened.directory, ESTERIFICATION)
        places = np.arange(1, len(ids) - 1)
        rows = np.tile(np.array(ids, np.int32), (len(places), 1))
        rows[places - 1, places] = vocabulary_of(opened.directory)["[MASK]"]
        inputs = {"tokens": rows, "token_mask": np.ones(rows.shape, bool)}
        for run in (in_float32.run_flax, in_float32.run_torch):
            logits = run(inputs)["logits"].reshape(*rows.shape, -1)
            found = logits[places - 1, places].argmax(-1) == np.array(ids)[places]
            assert (found.sum(), found.size) == (15, 21)
        figure(self.title, "known answer", "15 of 21 masked tokens")
