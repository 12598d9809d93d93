"""The architectures of published models, by the name each is known by."""

from dataclasses import replace

from transformer_spec.config import (
    ALiBi,
    AlternatingWindow,
    Causal,
    DeepNorm,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Learned,
    LinearScaling,
    Llama3Scaling,
    MixtureOfExperts,
    ModelConfig,
    PostNorm,
    PrefixLM,
    PreNorm,
    RelativeBias,
    RMSNorm,
    Rotary,
    SandwichNorm,
    TwoChannelRotary,
    YarnScaling,
)

# Radford et al. 2019, the smallest model.
GPT2 = ModelConfig(
    arch="decoder",
    vocab_size=50257,
    max_seq_len=1024,
    d_model=768,
    d_ff=3072,
    num_layers=12,
    num_heads=12,
    position=Learned(),
    norm=LayerNorm(eps=1e-5),
    residual=PreNorm(),
    ffn=FeedForward(activation="gelu_tanh"),
    qkv_bias=True,
    out_bias=True,
    tie_embeddings=True,
    embed_dropout=0.1,
    attn_dropout=0.1,
    attn_out_dropout=0.1,
    ffn_out_dropout=0.1,
)

# Devlin et al. 2019, with both heads that it was trained with.
BERT_BASE = replace(
    GPT2,
    arch="encoder",
    vocab_size=30522,
    max_seq_len=512,
    norm=LayerNorm(eps=1e-12),
    residual=PostNorm(),
    ffn=FeedForward(activation="gelu"),
    head_bias=True,
    embed_norm=True,
    num_token_types=2,
    masked_lm=True,
    pooler=True,
    next_sentence=True,
)

# Raffel et al. 2020. Its bias knows no longest sequence; 512 is what it was trained on.
T5_SMALL = ModelConfig(
    arch="encoder_decoder",
    vocab_size=32128,
    max_seq_len=512,
    d_model=512,
    d_ff=2048,
    num_layers=6,
    num_decoder_layers=6,
    num_heads=8,
    head_dim=64,
    position=RelativeBias(num_buckets=32, max_distance=128),
    norm=RMSNorm(eps=1e-6),
    residual=PreNorm(),
    ffn=FeedForward(activation="relu"),
    ffn_bias=False,
    tie_embeddings=True,
    share_embeddings=True,
    scale_head=True,
    attention_scale=1.0,
    embed_dropout=0.1,
    attn_dropout=0.1,
    attn_out_dropout=0.1,
    ffn_hidden_dropout=0.1,
    ffn_out_dropout=0.1,
)

# Shazeer 2020: GEGLU, no dropout in pre-training, an untied head.
T5_V1_1_SMALL = replace(
    T5_SMALL,
    d_ff=1024,
    num_layers=8,
    num_decoder_layers=8,
    num_heads=6,
    ffn=GatedFeedForward(activation="gelu_tanh"),
    tie_embeddings=False,
    scale_head=False,
    embed_dropout=0.0,
    attn_dropout=0.0,
    attn_out_dropout=0.0,
    ffn_hidden_dropout=0.0,
    ffn_out_dropout=0.0,
)

# Touvron et al. 2023, "LLaMA", Table 2.
LLAMA_7B = ModelConfig(
    arch="decoder",
    vocab_size=32000,
    max_seq_len=2048,
    d_model=4096,
    d_ff=11008,
    num_layers=32,
    num_heads=32,
    position=Rotary(),
    norm=RMSNorm(eps=1e-6),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    ffn_bias=False,
)

# Touvron et al. 2023, "Llama 2": twice the context; grouped heads in the largest.
LLAMA_2_7B = replace(LLAMA_7B, max_seq_len=4096, norm=RMSNorm(eps=1e-5))
LLAMA_2_70B = replace(
    LLAMA_2_7B, d_model=8192, d_ff=28672, num_layers=80, num_heads=64, num_kv_heads=8
)
# Chen et al. 2023: positions interpolated, here by 4. Peng et al. 2023: YaRN, by 16.
LLAMA_2_7B_16K = replace(
    LLAMA_2_7B, max_seq_len=16384, position=Rotary(scaling=LinearScaling(factor=4.0))
)
LLAMA_2_7B_64K = replace(
    LLAMA_2_7B,
    max_seq_len=65536,
    position=Rotary(scaling=YarnScaling(factor=16.0, original_max_seq_len=4096)),
)
# Dubey et al. 2024.
LLAMA_3_8B = replace(
    LLAMA_2_7B,
    vocab_size=128256,
    max_seq_len=8192,
    d_ff=14336,
    num_kv_heads=8,
    position=Rotary(theta=500000.0),
)
LLAMA_3_1_8B = replace(
    LLAMA_3_8B, max_seq_len=131072, position=Rotary(theta=500000.0, scaling=Llama3Scaling())
)

# Jiang et al. 2023, Table 1, and Jiang et al. 2024, Table 1.
MISTRAL_7B = replace(
    LLAMA_2_7B, max_seq_len=32768, d_ff=14336, num_kv_heads=8, mask=Causal(window=4096)
)
MIXTRAL_8X7B = replace(
    MISTRAL_7B,
    mask=Causal(),
    position=Rotary(theta=1e6),
    ffn=MixtureOfExperts(num_experts=8, top_k=2),
)

# Yang et al. 2025, "Qwen3", Table 1, the smallest model. Its heads are wider than d_model / N.
QWEN3_0_6B = replace(
    LLAMA_7B,
    vocab_size=151936,
    max_seq_len=40960,
    d_model=1024,
    d_ff=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    position=Rotary(theta=1e6),
    tie_embeddings=True,
    qk_norm=True,
)

# Gemma team 2024, "Gemma 2", Table 1, the smallest model.
GEMMA_2_2B = ModelConfig(
    arch="decoder",
    vocab_size=256000,
    max_seq_len=8192,
    d_model=2304,
    d_ff=9216,
    num_layers=26,
    num_heads=8,
    num_kv_heads=4,
    head_dim=256,
    position=Rotary(),
    mask=AlternatingWindow(window=4096),
    norm=RMSNorm(eps=1e-6, offset=1.0),
    residual=SandwichNorm(),
    ffn=GatedFeedForward(activation="gelu_tanh"),
    ffn_bias=False,
    tie_embeddings=True,
    scale_embeddings=True,
    attention_scale=256**-0.5,
    score_cap=50.0,
    logit_cap=30.0,
)

# Du et al. 2022 and ChatGLM-6B's own code. Its blocks normalize first and add the sublayer to the
# normalized input, scaled: DeepNorm, whose first norm is the embeddings'.
CHATGLM_6B = ModelConfig(
    arch="decoder",
    vocab_size=130528,
    max_seq_len=2048,
    d_model=4096,
    d_ff=16384,
    num_layers=28,
    num_heads=32,
    position=TwoChannelRotary(),
    mask=PrefixLM(),
    norm=LayerNorm(eps=1e-5),
    residual=DeepNorm(alpha=56**0.5),
    ffn=FeedForward(activation="gelu_tanh"),
    qkv_bias=True,
    out_bias=True,
    tie_embeddings=True,
    embed_norm=True,
)

# GLM team 2024. ChatGLM3-6B is ChatGLM2-6B's architecture with other weights.
CHATGLM2_6B = ModelConfig(
    arch="decoder",
    vocab_size=65024,
    max_seq_len=32768,
    d_model=4096,
    d_ff=13696,
    num_layers=28,
    num_heads=32,
    num_kv_heads=2,
    head_dim=128,
    position=Rotary(fraction=0.5, interleaved=True),
    norm=RMSNorm(eps=1e-5),
    residual=PreNorm(),
    ffn=GatedFeedForward(activation="silu"),
    qkv_bias=True,
    ffn_bias=False,
)
GLM_4_9B = replace(
    CHATGLM2_6B, vocab_size=151552, max_seq_len=8192, num_layers=40, norm=RMSNorm(eps=1.5625e-7)
)
GLM_4_9B_0414 = replace(
    GLM_4_9B, max_seq_len=32768, norm=RMSNorm(eps=1e-5), residual=SandwichNorm()
)

# BigScience 2022, the smallest model.
BLOOM_560M = ModelConfig(
    arch="decoder",
    vocab_size=250880,
    max_seq_len=2048,
    d_model=1024,
    d_ff=4096,
    num_layers=24,
    num_heads=16,
    position=ALiBi(),
    norm=LayerNorm(eps=1e-5),
    residual=PreNorm(),
    ffn=FeedForward(activation="gelu_tanh"),
    qkv_bias=True,
    out_bias=True,
    tie_embeddings=True,
    embed_norm=True,
)

# Name -> one line about it, and the model.
PUBLISHED: dict[str, tuple[str, ModelConfig]] = {
    "gpt2": ("GPT-2 of 124M parameters", GPT2),
    "bert-base": ("BERT base with masked-token and next-sentence heads", BERT_BASE),
    "t5-small": ("T5 v1.0: relative bias, RMSNorm, tied and scaled head", T5_SMALL),
    "t5-v1.1-small": ("T5 v1.1: GEGLU, an untied head", T5_V1_1_SMALL),
    "llama-7b": ("LLaMA: rotary positions, RMSNorm, SwiGLU", LLAMA_7B),
    "llama-2-7b-16k": ("Llama 2 with positions interpolated by 4", LLAMA_2_7B_16K),
    "llama-2-7b-64k": ("Llama 2 with YaRN by 16", LLAMA_2_7B_64K),
    "llama-2-70b": ("Llama 2, grouped heads", LLAMA_2_70B),
    "llama-3-8b": ("Llama 3: grouped heads, theta 500,000", LLAMA_3_8B),
    "llama-3.1-8b": ("Llama 3.1: its frequencies scaled for 131,072 tokens", LLAMA_3_1_8B),
    "mistral-7b": ("Mistral: a window of 4,096 tokens", MISTRAL_7B),
    "mixtral-8x7b": ("Mixtral: 2 of 8 experts per token", MIXTRAL_8X7B),
    "qwen3-0.6b": ("Qwen3: q and k normalized per head, a tied head", QWEN3_0_6B),
    "gemma-2-2b": ("Gemma 2: windows in every other layer, soft caps", GEMMA_2_2B),
    "chatglm-6b": ("ChatGLM: prefix mask, two-channel rotary, deep norm", CHATGLM_6B),
    "chatglm2-6b": ("ChatGLM2 and 3: half of each head rotated, two key/value heads", CHATGLM2_6B),
    "glm-4-9b": ("GLM-4: ChatGLM2's parts", GLM_4_9B),
    "glm-4-9b-0414": ("GLM-4 0414: norms on both sides of each sublayer", GLM_4_9B_0414),
    "bloom-560m": ("BLOOM: ALiBi, normalized embeddings", BLOOM_560M),
}
