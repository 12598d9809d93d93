"""Known mistakes that cannot be planted yet, and the feature that each one waits for."""

from parity.plants.plant import Waiting, github
from parity.plants.waiting_generation import GENERATION

_MODEL = (
    Waiting(
        "MSK-02",
        "Window kept by one kernel and not by the other",
        "mask",
        github("unslothai/unsloth/pull/8253", "RBLN-SW/vllm-rbln/issues/34"),
        "sliding windows",
    ),
    Waiting(
        "MSK-04",
        "A window of W keys taken for W keys before the query",
        "mask",
        github("huggingface/transformers/issues/39408"),
        "sliding windows",
    ),
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
        "MSK-18",
        "Prefix that should be seen both ways is causal",
        "mask",
        github("NVIDIA/TensorRT-LLM/issues/1384", "zai-org/ChatGLM-6B/issues/134"),
        "prefix masks (the ChatGLM family)",
    ),
    Waiting(
        "PE-02",
        "Rotation by the number of the head",
        "positions",
        github(
            "mlfoundations/open_lm/issues/4",
            "facebookresearch/xformers/issues/841",
            "NVIDIA/audio-flamingo/issues/27",
            "tensorgi/TPA/issues/4",
        ),
        "rotary positions",
    ),
    Waiting(
        "PE-03",
        "Frequencies of a partial rotation from the whole head",
        "positions",
        github(
            "pie-project/pie/issues/602",
            "apple/coreai-models/issues/66",
            "huggingface/transformers/pull/48652",
        ),
        "partial rotary positions",
    ),
    Waiting(
        "PE-04",
        "Rotated part halved once more in every layer",
        "positions",
        github("vllm-project/vllm/issues/16904"),
        "partial rotary positions",
    ),
    Waiting(
        "PE-05",
        "Base of the rotation fixed at 10000",
        "positions",
        github(
            "lyogavin/airllm/pull/369", "vllm-project/vllm/pull/9503", "intel/ipex-llm/pull/10787"
        ),
        "rotary positions",
    ),
    Waiting(
        "PE-06",
        "Long-context frequencies not rescaled",
        "positions",
        github("NVIDIA/TensorRT-Model-Connect/pull/655", "Xilinx/mlir-air/pull/1948"),
        "rotary positions with scaled frequencies",
    ),
    Waiting(
        "PE-09",
        "Rotation table cached without its offset",
        "positions",
        github("lucidrains/rotary-embedding-torch/issues/11"),
        "rotary positions and key/value cache",
    ),
    Waiting(
        "PE-15",
        "Distances sorted into the wrong buckets",
        "positions",
        github("lucidrains/x-transformers/pull/10", "ml-explore/mlx-examples/pull/113"),
        "T5 relative bias",
    ),
    Waiting(
        "PE-16",
        "Decoder distances bucketed for both directions",
        "positions",
        github("huggingface/transformers/pull/8518", "huggingface/transformers/issues/6285"),
        "T5 relative bias",
    ),
    Waiting(
        "PE-17",
        "Relative bias in cross-attention",
        "positions",
        github(
            "huggingface/transformers/pull/8518",
            "huggingface/transformers/issues/7323",
            "guillaume-be/rust-bert/pull/171",
        ),
        "T5 relative bias",
    ),
    Waiting(
        "PE-19",
        "Relative bias of the first query at every step",
        "positions",
        github("huggingface/candle/pull/899", "keras-team/keras-hub/pull/2932"),
        "T5 relative bias and key/value cache",
    ),
    Waiting(
        "PE-24",
        "Sequence position runs on past the mask token",
        "positions",
        github("zai-org/ChatGLM-6B/issues/134", "zai-org/ChatGLM-6B/issues/1258"),
        "the ChatGLM family",
    ),
    Waiting(
        "PE-25",
        "Positions of one row written into all",
        "positions",
        github("zai-org/ChatGLM-6B/issues/833"),
        "the ChatGLM family",
    ),
    Waiting(
        "NRM-07",
        "Norm weight shifted by one twice or never",
        "norm",
        github("utensils/mold/pull/1078", "ggml-org/llama.cpp/pull/5810"),
        "norms with weight 1 + w (the Gemma family)",
    ),
    Waiting(
        "FFN-06",
        "Softmax over router probabilities",
        "feed-forward",
        github("huggingface/transformers/pull/45132"),
        "mixture of experts",
    ),
    Waiting(
        "FFN-07",
        "Balance loss over all layers at once",
        "feed-forward",
        github(
            "huggingface/transformers/issues/28093",
            "huggingface/transformers/issues/28255",
            "huggingface/transformers/pull/28256",
        ),
        "mixture of experts",
    ),
    Waiting(
        "FFN-08",
        "Padding counted in the balance loss",
        "feed-forward",
        github(
            "huggingface/transformers/issues/28505",
            "huggingface/transformers/pull/28517",
            "huggingface/transformers/pull/29363",
        ),
        "mixture of experts",
    ),
    Waiting(
        "EMB-02",
        "Head scale applied to the untied heads",
        "embedding",
        github("ml-explore/mlx-examples/pull/591", "huggingface/transformers/pull/43681"),
        "a scale on the tied head (the T5 family)",
    ),
    Waiting(
        "ENC-03",
        "Cache mask computed and not used",
        "encoder-decoder",
        github("huggingface/transformers/issues/26564", "huggingface/transformers/pull/26663"),
        "key/value cache",
    ),
    Waiting(
        "ENC-04",
        "Ignored labels or a wrong start token fed to the decoder",
        "encoder-decoder",
        github("huggingface/transformers/pull/12150", "huggingface/transformers/issues/20842"),
        "a shift of labels into decoder inputs",
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
    Waiting(
        "INI-02",
        "Smaller residual weights that no name asks for",
        "initialization",
        github("huggingface/transformers/issues/47458"),
        "initialization scaled by depth",
    ),
    Waiting(
        "INI-03",
        "Up projection made smaller for the down projection",
        "initialization",
        github("karpathy/llama2.c/issues/579"),
        "initialization scaled by depth",
    ),
)

WAITING = (*_MODEL, *GENERATION)
