"""Known mistakes that cannot be planted yet, and the feature that each one waits for."""

from parity.plants.plant import Waiting, github
from parity.plants.waiting_generation import GENERATION

_MODEL = (
    Waiting(
        "MSK-16",
        "One query against many keys sees only the first",
        "mask",
        github(
            "pytorch/pytorch/issues/103082",
            "ml-explore/mlx/issues/2835",
            "pytorch/executorch/issues/22426",
        ),
        "key/value cache",
    ),
    Waiting(
        "PE-09",
        "Rotation table cached without its offset",
        "positions",
        github("lucidrains/rotary-embedding-torch/issues/11"),
        "rotary positions and key/value cache",
    ),
    Waiting(
        "PE-19",
        "Relative bias of the first query at every step",
        "positions",
        github("huggingface/candle/pull/899", "keras-team/keras-hub/pull/2932"),
        "T5 relative bias and key/value cache",
    ),
    Waiting(
        "ENC-03",
        "Cache mask computed and not used",
        "encoder-decoder",
        github("huggingface/transformers/issues/26564", "huggingface/transformers/pull/26663"),
        "key/value cache",
    ),
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
