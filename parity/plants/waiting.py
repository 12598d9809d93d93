"""Known mistakes that cannot be planted yet, and the feature that each one waits for."""

from parity.plants.plant import Waiting, github
from parity.plants.waiting_generation import GENERATION

_MODEL = (
    Waiting(
        "OPT-10",
        "Biases of stacked layers decay",
        "optimizer",
        github("salesforce/jaxformer/issues/28"),
        "layers stacked by scan",
    ),
    Waiting(
        "SCH-05",
        "Schedule advanced by every small batch",
        "schedule",
        github(
            "EvolvingLMMs-Lab/OneVision-Encoder/pull/82",
            "facebookresearch/vilbert-multi-task/issues/20",
        ),
        "accumulation",
    ),
    Waiting(
        "CLP-04",
        "Each small batch clipped",
        "clip",
        github(
            "huggingface/transformers/issues/986",
            "facebookresearch/lingua/pull/59",
            "tenstorrent/tt-metal/issues/17568",
        ),
        "accumulation",
    ),
)

WAITING = (*_MODEL, *GENERATION)
