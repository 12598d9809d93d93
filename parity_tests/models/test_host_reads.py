"""Ids are read on the host once a call, and never where that would wait for an accelerator."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import flax_transformer
import flax_transformer.embeddings as flax_embeddings
import torch_reference
from torch_reference.training import Trainer
from transformer_spec.presets import PRESETS
from transformer_training.tasks import make_task
from verification.twins.hostile import hostile_config, tokens

MODELS = {
    "decoder": (
        hostile_config(num_layers=1),
        {"tokens": tokens(23, 2, 5), "positions": tokens(13, 2, 5)},
    ),
    "encoder with segments": (
        hostile_config(arch="encoder", num_layers=1, num_token_types=3),
        {"tokens": tokens(23, 2, 5), "token_types": tokens(3, 2, 5)},
    ),
    "encoder-decoder": (
        hostile_config(arch="encoder_decoder", num_layers=1, num_decoder_layers=1),
        {"source": tokens(23, 2, 7), "target": tokens(23, 2, 5)},
    ),
}
EACH = pytest.mark.parametrize("name", MODELS)


class HostReads(TorchDispatchMode):
    """Counts the values that torch hands to Python: on an accelerator each waits for it."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@EACH
def test_torch_reads_two_bounds_of_each_array_of_ids(name):
    config, inputs = MODELS[name]
    model = torch_reference.build_model(config)
    with HostReads() as reads:
        model(**{key: torch.tensor(ids) for key, ids in inputs.items()})
    assert reads.count == 2 * len(inputs)


@EACH
def test_flax_reads_each_array_of_ids_once_and_none_under_jit(name, monkeypatch):
    config, inputs = MODELS[name]
    model, read = flax_transformer.build_model(config), []

    def counted(x):
        read.append(host_values(x) is not None)
        return host_values(x)

    host_values = flax_embeddings.host_values
    monkeypatch.setattr(flax_embeddings, "host_values", counted)
    arrays = {key: jnp.asarray(ids) for key, ids in inputs.items()}
    variables = jax.jit(model.init)(jax.random.key(0), **arrays)
    assert read == [False] * len(inputs)
    model.apply(variables, **arrays)
    assert read == [False] * len(inputs) + [True] * len(inputs)


@pytest.mark.parametrize("name", ["char-gpt", "sort"])
def test_an_update_in_torch_reads_nothing(name):
    """Its batches hold ids that their task has made."""
    preset = PRESETS[name]
    decoder = 1 if preset.model.num_decoder_layers else None
    model = replace(preset.model, d_model=24, num_layers=1, num_decoder_layers=decoder)
    task = make_task(model, replace(preset.train, batch_size=6, accumulation=2))
    trainer = Trainer(task.model, replace(preset.train, batch_size=6, accumulation=2))
    trainer.train(task.train_batch(1), 1e-3)
    batch = task.train_batch(2)
    with HostReads() as reads:
        metrics = trainer.train(batch, 1e-3)
        assert reads.count == 0
        float(metrics["loss"])
        assert reads.count == 1


@EACH
def test_torch_on_a_gpu_reads_nothing(name):
    if not torch.cuda.is_available():
        pytest.skip("no GPU here: reads that would wait for one are counted on the CPU alone")
    config, inputs = MODELS[name]
    model = torch_reference.build_model(config).cuda()
    arrays = {key: torch.tensor(ids, device="cuda") for key, ids in inputs.items()}
    model(**arrays)
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(**arrays)
    finally:
        torch.cuda.set_sync_debug_mode("default")
