"""A pair of twins as strangers would hand it over: other names, other layouts, fused arrays."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import torch
from flax.traverse_util import flatten_dict, unflatten_dict

Tree = dict[str, Any]
Undo = Callable[[Mapping[str, Any]], Any]
# The chance that a kernel is stored with its axes exchanged, that kernels which read one value
# are stored as one array, and that the sides have another order of batch and sequence.
TRANSPOSED, FUSED, TIME_FIRST = 0.5, 0.7, 0.5
_LETTERS = list("bcdfghjklmnpqrstvwxz")
FUSIBLE = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Names:
    """Names that say nothing, each given once."""

    def __init__(self, rng: np.random.Generator):
        self._rng, self._drawn = rng, set[str]()

    def draw(self) -> str:
        name = ""
        while not name or name in self._drawn:
            name = "".join(self._rng.choice(_LETTERS, 6))
        self._drawn.add(name)
        return name


def rename_torch(model: torch.nn.Module, rng: np.random.Generator) -> torch.nn.Module:
    """The same module, its own submodules and parameters under names that say nothing.

    Classes of torch keep the names of their parameters: a stranger's `nn.Linear` has a `weight`.
    """
    names = Names(rng)
    for module in list(model.modules()):
        if not type(module).__module__.startswith("torch.nn"):
            _rename_members(module, names)
    return model


def _tables(module: torch.nn.Module) -> tuple[Any, ...]:
    return module._modules, module._parameters, module._buffers


def _rename_members(module: torch.nn.Module, names: Names) -> None:
    renamed = {}
    for table in _tables(module):
        for name in list(table):
            renamed[name] = names.draw()
            table[renamed[name]] = table.pop(name)
    persistent = module._non_persistent_buffers_set
    module._non_persistent_buffers_set = {renamed.get(n, n) for n in persistent}
    kind = type(module)

    def find(self: torch.nn.Module, name: str) -> Any:
        return torch.nn.Module.__getattr__(self, renamed.get(name, name))

    module.__class__ = type(names.draw(), (kind,), {"__getattr__": find})


def disguise_flax(
    model: nn.Module, params: Tree, inputs: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[tuple[Callable[..., Any], Tree], dict[str, np.ndarray]]:
    """(function, pytree) of the same model, and the inputs it takes.

    Its arrays have names that say nothing. Some kernels are stored transposed, some that read the
    same value lie in one array, and the sequence may come before the batch.
    """
    flat = {"/".join(path): np.asarray(x) for path, x in flatten_dict(params).items()}
    names, tree, undo = Names(rng), {}, []
    for group in _groups(flat, rng):
        name, turned = names.draw(), bool(rng.random() < TRANSPOSED)
        arrays = [flat[member] for member in group]
        whole = arrays[0] if len(group) == 1 else np.concatenate(arrays, -1)
        turned = turned and whole.ndim == 2 and group[0].endswith("kernel")
        tree[name] = whole.T if turned else whole
        undo.append((name, turned, group, np.cumsum([a.shape[-1] for a in arrays])[:-1]))
    time_first = bool(rng.random() < TIME_FIRST) and _is_plain(inputs)

    def apply(arrays: Mapping[str, Any], **given: Any) -> Any:
        found = {}
        for name, turned, group, borders in undo:
            whole = arrays[name].T if turned else arrays[name]
            parts = [whole] if len(group) == 1 else jnp.split(whole, borders, -1)
            found |= {tuple(m.split("/")): p for m, p in zip(group, parts, strict=True)}
        if time_first:
            given = {n: x.swapaxes(0, 1) for n, x in given.items()}
        out: Any = model.apply({"params": unflatten_dict(found)}, **given)
        return out.swapaxes(0, 1) if time_first else out

    order = list(tree)
    rng.shuffle(order)
    shuffled = {name: tree[name] for name in order}
    turned_inputs = {n: x.swapaxes(0, 1) if time_first else x for n, x in inputs.items()}
    return (apply, shuffled), turned_inputs


def _is_plain(inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether every input is [B, T]: a mask of four axes has no one order of batch and time."""
    return all(x.ndim == 2 for x in inputs.values())


def _groups(flat: Mapping[str, np.ndarray], rng: np.random.Generator) -> Iterator[list[str]]:
    """The arrays to be stored as one: q, k and v of a layer, gate and up of another."""
    left = dict.fromkeys(flat)
    for name in flat:
        owner, _, leaf = name.rpartition("/")
        above, _, kind = owner.rpartition("/")
        kinds = next((kinds for kinds in FUSIBLE if kind in kinds), ())
        members = [f"{above}/{other}/{leaf}" for other in kinds]
        if members and all(m in left for m in members) and rng.random() < FUSED:
            group = members
        elif name in left:
            group = [name]
        else:
            continue
        for member in group:
            del left[member]
        yield group
