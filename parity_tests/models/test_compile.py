"""torch.compile of the torch twin equals eager: values, gradients, an update.

In a process of its own: the run-time checks of annotations that pytest installs cannot be traced.
"""

import shutil

import pytest

from parity_tests.processes import run_python

PROGRAM = """
import numpy as np, torch
from dataclasses import replace
from torch_reference.training import Trainer
from transformer_spec import PRESETS
from transformer_training.tasks import make_task

preset = PRESETS[{name!r}]
model = replace(preset.model, d_model=24, d_ff=29, num_layers=1, attention_scale=0.3)
if model.num_decoder_layers:
    model = replace(model, num_decoder_layers=1)
model = replace(model, **{{n: 0.0 for n in model.__dataclass_fields__ if n.endswith("_dropout")}})
train = replace(preset.train, dtype={dtype!r}, batch_size=6, accumulation=2)
task = make_task(model, train)
eager = Trainer(task.model, train)
compiled = Trainer(task.model, replace(train, compile=True))
compiled.load_parameters(eager.parameters())
for update in (1, 2, 3):
    a = eager.train(task.train_batch(update), 1e-3)
    b = compiled.train(task.train_batch(update), 1e-3)
    for key in ("loss", "grad_norm"):
        assert abs(a[key] - b[key]) <= {tolerance} * a[key], (update, key, a[key], b[key])
difference = max(np.abs(p - compiled.parameters()[n]).max() for n, p in eager.parameters().items())
assert 0 <= difference < 1e3 * {tolerance}, difference
assert any(hasattr(compiled.forward, x) for x in ("_orig_mod", "_torchdynamo_orig_callable"))
print("equal, differ by", difference)
"""


@pytest.mark.slow  # inductor takes half a minute, whatever it compiles
@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    # What is fused is rounded less often: bfloat16 is held to its own last digit.
    [("char-gpt", "float64", 1e-12), ("sort", "float64", 1e-12), ("char-gpt", "bfloat16", 2**-7)],
)
def test_compiled_training_is_eager_training(name, dtype, tolerance):
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler on the CPU and there is none")
    assert "equal" in run_python(PROGRAM.format(name=name, dtype=dtype, tolerance=tolerance))
