"""Parameters read from a checkpoint whose tensors are stored in more than one dtype."""

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from parity.explain.causes.evidence import Cause
from parity.judge.errors import relative_error
from transformer_hub import open_checkpoint
from transformer_spec.parameters import is_norm, parameter_shapes
from transformer_training.checkpoints import save_arrays
from verification.stages.finding import Finding
from verification.twins.hostile import hostile_config
from verification.twins.weights import hostile_parameters

Named = dict[str, np.ndarray]
WANTED = "float32"
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def read(path: Path, dtype: str) -> Named:
    """What a twin is given."""
    return dict(open_checkpoint(path).arrays(dtype))


READERS: dict[str, Callable[[Path, str], Named]] = {"flax": read, "torch": read}


def compare_checkpoints() -> list[Finding]:
    """Where what the two sides read differs in dtype or value, and why."""
    stored = _stored()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        config = {"model": hostile_config().to_dict()}
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        save_arrays(path / "model.safetensors", stored)
        ours, theirs = (READERS[side](path, WANTED) for side in ("flax", "torch"))
    odd = [n for n in ours if n not in theirs or theirs[n].dtype != ours[n].dtype]
    odd += [n for n in ours if n not in odd and relative_error(theirs[n], ours[n])]
    if not odd:
        return []
    causes = list(_causes(stored, ours, theirs))
    return [Finding("checkpoint", f"{len(odd)} of {len(ours)} parameters", None, causes)]


@cache
def _stored() -> Named:
    """Norms in float32, the embedding in float16, the rest in bfloat16."""
    named = hostile_parameters(parameter_shapes(hostile_config()), seed=0)
    return {
        n: x.astype(np.float32 if is_norm(n) else np.float16 if "embed" in n else _BFLOAT16)
        for n, x in named.items()
    }


def _causes(stored: Named, ours: Named, theirs: Named) -> Iterator[Cause]:
    """Into which dtype each stored one is cast, on both sides."""
    missing = [name for name in ours if name not in theirs]
    if missing:
        yield Cause(f"{', '.join(missing)} not read", "read every tensor")
        return
    right, wrong = (_casts(stored, side) for side in (ours, theirs))
    for dtype, into in wrong.items():
        if into != right[dtype]:
            text = f"what is stored in {dtype} comes in {into}, where the reference has"
            yield Cause(f"{text} {right[dtype]}", "cast each tensor by its own dtype", 0.0)


def _casts(stored: Named, read: Named) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for name, array in stored.items():
        found.setdefault(str(array.dtype), set()).add(str(read[name].dtype))
    return {dtype: " and ".join(sorted(into)) for dtype, into in found.items()}
