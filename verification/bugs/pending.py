"""Known mistakes that cannot be seeded yet, and the feature that each one needs."""

from verification.bugs.seeded_bug import PendingBug, github

PENDING_BUGS = (
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
