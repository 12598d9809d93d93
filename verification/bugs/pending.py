"""Known mistakes that cannot be seeded yet, and the feature that each one needs."""

from verification.bugs.seeded_bug import PendingBug, github

PENDING_BUGS = (
    PendingBug(
        "KV-01",
        "Decode position one too far",
        "generation",
        github("microsoft/onnxruntime-genai/pull/2354"),
        "key/value cache",
    ),
    PendingBug(
        "KV-03",
        "Prompt length added at every step",
        "generation",
        github("skyzh/tiny-llm/pull/46"),
        "key/value cache",
    ),
    PendingBug(
        "KV-04",
        "Queries of a decode step rotated as the first",
        "generation",
        github("RobertCsordas/moeut/pull/6", "pytorch/executorch/pull/2010"),
        "rotary positions and key/value cache",
    ),
    PendingBug(
        "KV-05",
        "No causal mask while the cache is filled",
        "generation",
        github("Mikyx-1/TinyLLM/issues/17", "Mikyx-1/TinyLLM/pull/18"),
        "key/value cache",
    ),
    PendingBug(
        "KV-06",
        "Chunk aligned with the start of the cache",
        "generation",
        github("hyprstream/hyprstream/pull/1521", "google/flax/pull/1316"),
        "key/value cache",
    ),
    PendingBug(
        "KV-07",
        "Causal flag and cache mask leave one key",
        "generation",
        github("google/flax/issues/5591", "google/flax/issues/4505"),
        "key/value cache",
    ),
    PendingBug(
        "KV-09",
        "Write past the end of the cache lands inside",
        "generation",
        github("jax-ml/jax/pull/34257", "jax-ml/jax/issues/21392"),
        "key/value cache",
    ),
    PendingBug(
        "KV-14",
        "Last beam read for the best",
        "generation",
        github("huggingface/transformers/pull/21368", "huggingface/transformers/pull/20901"),
        "beam search",
    ),
    PendingBug(
        "KV-15",
        "Length penalty that counts the prompt",
        "generation",
        github("huggingface/transformers/issues/26624", "huggingface/transformers/issues/25455"),
        "beam search",
    ),
    PendingBug(
        "KV-16",
        "Search over when one beam is",
        "generation",
        github("OpenNMT/OpenNMT-py/issues/1320"),
        "beam search",
    ),
    PendingBug(
        "KV-17",
        "Sampling options without effect",
        "generation",
        github("huggingface/transformers/pull/16231"),
        "sampling options",
    ),
    PendingBug(
        "DAT-01",
        "End token masked because it is the padding token",
        "data",
        github("huggingface/transformers/issues/23530", "huggingface/trl/issues/976"),
        "tokenizer pipelines",
    ),
    PendingBug(
        "DAT-02",
        "Padding and special tokens hidden for prediction",
        "data",
        github("huggingface/transformers/issues/11155"),
        "masked language modelling",
    ),
    PendingBug(
        "DAT-04",
        "Two start tokens",
        "data",
        github("marin-community/levanter/issues/574", "deepseek-ai/DeepSeek-R1/issues/151"),
        "tokenizer pipelines",
    ),
)
