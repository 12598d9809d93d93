"""A torch module, or a function and its tensors, as a `TorchModel`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from parity.models.failures import TORCH_RUNS, blaming
from parity.models.model import TorchModel
from parity.observe.arrays import as_array
from parity.observe.settings import NotComparableError

_EXPECTED = "a torch module, or (function, dictionary of tensors) is needed"


def torch_model(built: Any, options: Mapping[str, Any] | None = None) -> TorchModel:
    """The model in what a user's builder returned: a module, or (function, tensors).

    A function is called as function(tensors, *inputs); alone, as function(*inputs).

    Raises:
        NotComparableError: it is neither, or its parameters hold no numbers yet.
    """
    options = dict(options or {})
    if isinstance(built, nn.Module):
        return _of_module(_unwrapped(built), options)
    if isinstance(built, tuple) and len(built) == 2 and callable(built[0]):
        return _of_function(built[0], built[1], options)
    if callable(built):
        return _of_function(lambda _, *args, **kwargs: built(*args, **kwargs), {}, options)
    raise NotComparableError(f"torch: {_EXPECTED}, this is {type(built).__name__}")


def is_torch(built: Any) -> bool:
    """Whether a user's builder returned a torch model: a module, or (function, tensors)."""
    if isinstance(built, tuple) and len(built) == 2 and callable(built[0]):
        return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(built[1]))
    return isinstance(built, nn.Module)


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` or a parallel wrapper holds."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return module.module
    return getattr(module, "_orig_mod", module)


def _of_module(module: nn.Module, options: Mapping[str, Any]) -> TorchModel:
    first: dict[int, str] = {}
    held: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in _tensors(module):
        _require_numbers(name, tensor)
        if id(tensor) in first:
            aliases[name] = first[id(tensor)]
        else:
            first[id(tensor)] = name
            held[name] = tensor
    learned = [n for n, t in held.items() if isinstance(t, nn.Parameter) and t.is_floating_point()]
    # A model made ready for inference has every parameter frozen: that is not a stopped gradient.
    free = [name for name in learned if held[name].requires_grad] or learned
    buffers = {name for name, tensor in held.items() if not isinstance(tensor, nn.Parameter)}

    def call(
        tensors: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        # Statistics and caches are updated in place.
        given = {name: t.clone() if name in buffers else t for name, t in tensors.items()}
        own = {name: held[name].clone() for name in buffers if name not in given}
        with blaming(TORCH_RUNS), _default_of(tensors):
            return functional_call(module, given | own, tuple(args), {**kwargs, **options})

    arrays = {name: as_array(tensor) for name, tensor in held.items()}
    return TorchModel(arrays, frozenset(free), call, module, options, aliases)


@contextmanager
def _default_of(tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Under float64 parameters, let what a model makes itself be float64 too, as in JAX.

    `torch.full(size, torch.finfo(x.dtype).min)`, as masks are made, would overflow float32.
    """
    before = torch.get_default_dtype()
    wide = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    torch.set_default_dtype(torch.float64 if wide else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer with its name, module by module, tied ones repeated."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for table in (owner._parameters, owner._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    yield f"{prefix}.{name}".lstrip("."), tensor


def _require_numbers(name: str, tensor: torch.Tensor) -> None:
    if is_lazy(tensor):
        raise NotComparableError(f"torch: {name} has no shape yet; call the module once first")
    if tensor.is_meta:
        raise NotComparableError(f"torch: {name} is on the meta device and holds no numbers")


def _of_function(function: Callable[..., Any], tree: Any, options: Mapping[str, Any]) -> TorchModel:
    keyed, structure = pytree.tree_flatten_with_path(tree)
    leaves = [leaf for _, leaf in keyed]
    names = [_dotted(path) for path, _ in keyed]
    held = {n: t for n, t in zip(names, leaves, strict=True) if isinstance(t, torch.Tensor)}
    if not held and leaves:
        raise NotComparableError(f"torch: {_EXPECTED}, this holds {type(leaves[0]).__name__}")

    def call(
        tensors: Mapping[str, torch.Tensor], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        given = [tensors.get(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
        with blaming(TORCH_RUNS), _default_of(tensors):
            return function(pytree.tree_unflatten(given, structure), *args, **kwargs, **options)

    trainable = frozenset(name for name, tensor in held.items() if tensor.is_floating_point())
    arrays = {name: as_array(tensor) for name, tensor in held.items()}
    return TorchModel(arrays, trainable, call, None, options)


def _dotted(path: Sequence[Any]) -> str:
    keys = (getattr(k, "key", getattr(k, "idx", getattr(k, "name", k))) for k in path)
    return ".".join(str(key) for key in keys)
