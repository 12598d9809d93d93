"""GPT-2 over bacterial genera (MGM, package microformer-mgm)."""

from typing import ClassVar

import numpy as np
import pytest

from parity_tests.weights.archives import Archive
from parity_tests.weights.padding import padded
from parity_tests.weights.published_model import PublishedModel

FOLDER = "mgm/resources/general_model"
BEGIN, VOCABULARY = 2, 9669


@pytest.mark.xdist_group("mgm")
class TestMGM(PublishedModel):
    title = "GPT-2 (MGM)"
    archive = Archive(
        "microformer-mgm==0.5.8",
        "microformer_mgm-0.5.8-py3-none-any.whl",
        "210891685565022ea869e88a7452769dc6fbe3f699d2a133e15338d1e30eb92b",
    )
    members: ClassVar = {name: f"{FOLDER}/{name}" for name in ("config.json", "pytorch_model.bin")}
    parameters = 8_924_928
    original, auto = "GPT2LMHeadModel", "AutoModelForCausalLM"
    repeated = frozenset({"lm_head.weight"})

    @classmethod
    def inputs(cls, directory):
        """Its words are a pickle, which is not opened: any genera will do."""
        rng = np.random.default_rng(31)
        rows = [[BEGIN, *rng.choice(VOCABULARY, length, replace=False)] for length in (61, 37)]
        ids, keep = padded(rows)
        return {"tokens": ids, "token_mask": keep}
