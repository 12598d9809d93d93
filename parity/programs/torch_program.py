"""A torch model's run as a program of ATen operations."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as torch_modules
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from parity.observe.arrays import as_tensor, dtype_name, to_numpy
from parity.programs.program import Kind, Operation, Program, Results, Source, Value
from parity.programs.sources import code_at, users_frame


def record_torch(
    call: Callable[..., Any], tensors: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> Program:
    """Run `call(tensors, inputs)` once and write down every operation.

    Args:
        call: what is run; it reads the tensors it is given by these dictionaries.
        tensors: parameters and buffers by name; those that require gradients are differentiated.
        inputs: the floating-point and integer arrays the model is called with, by name.
    """
    recorder = _Recorder()
    given: tuple[tuple[Kind, Mapping[str, Tensor]], ...]
    given = ("parameter", tensors), ("input", inputs)
    for kind, named in given:
        for name, tensor in named.items():
            recorder.leaves[kind, name] = recorder.add(tensor, kind, name)
    with torch.enable_grad(), sdpa_kernel([SDPBackend.MATH]), _module_names(recorder), recorder:
        returned = call(tensors, inputs)
    named = _named_tensors(returned)

    def rerun(changed: Mapping[int, np.ndarray], weights: Mapping[int, np.ndarray]) -> Results:
        names = dict(zip(numbers, named, strict=True))
        return _rerun(call, recorder, tensors, inputs, changed, names, weights)

    numbers = [recorder.number(tensor) for tensor in named.values()]
    return Program(
        "torch",
        recorder.values,
        recorder.operations,
        {n: t.detach() for n, t in recorder.tensors.items()},
        dict(zip(named, numbers, strict=True)),
        _like,
        to_numpy,
        rerun,
    )


def _rerun(
    call: Callable[..., Any],
    recorder: "_Recorder",
    tensors: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    changed: Mapping[int, np.ndarray],
    outputs: Mapping[int, str],
    weights: Mapping[int, np.ndarray],
) -> Results:
    """Run the model as torch runs it and differentiate the weighted sum of its outputs."""
    leaves: dict[int, Tensor] = {}

    def fresh(given: Mapping[str, Tensor], kind: Kind) -> dict[str, Tensor]:
        found = {}
        for name, tensor in given.items():
            number = recorder.leaves[kind, name]
            held = _like(changed[number], tensor) if number in changed else tensor.detach().clone()
            found[name] = leaves[number] = held.requires_grad_(tensor.requires_grad)
        return found

    with torch.enable_grad(), sdpa_kernel([SDPBackend.MATH]):
        returned = _named_tensors(call(fresh(tensors, "parameter"), fresh(inputs, "input")))
        computed = {number: returned[name] for number, name in outputs.items()}
        parts = [
            (as_tensor(weights[n]).to(out.device, out.dtype) * out).sum()
            for n, out in computed.items()
            if n in weights and out.requires_grad
        ]
        wanted = {n: leaf for n, leaf in leaves.items() if leaf.requires_grad}
        gradients: Sequence[Tensor | None] = [None] * len(wanted)
        if parts and wanted:
            gradients = torch.autograd.grad(
                torch.stack(parts).sum(), list(wanted.values()), allow_unused=True
            )
    return (
        {n: to_numpy(out) for n, out in computed.items()},
        {
            n: np.zeros(tuple(leaf.shape)) if gradient is None else to_numpy(gradient)
            for (n, leaf), gradient in zip(wanted.items(), gradients, strict=True)
        },
    )


def _named_tensors(returned: Any) -> dict[str, Tensor]:
    """The tensors in what a model returned, by their path; containers with fields are opened."""
    if isinstance(returned, Tensor):
        return {"output": returned}
    fields = returned
    if hasattr(returned, "__dataclass_fields__") and not isinstance(returned, dict):
        fields = {name: getattr(returned, name) for name in returned.__dataclass_fields__}
    if isinstance(fields, Mapping):
        items: Iterator = iter(fields.items())
    elif isinstance(fields, list | tuple):
        keys = getattr(fields, "_fields", range(len(fields)))
        items = zip(map(str, keys), fields, strict=True)
    else:
        return {}
    found = {}
    for name, value in items:
        for inner, tensor in _named_tensors(value).items():
            found[str(name) if inner == "output" else f"{name}.{inner}"] = tensor
    return found


def _like(array: np.ndarray, old: Tensor) -> Tensor:
    """The array as a tensor of the old one's dtype, and of its strides unless they repeat."""
    given = as_tensor(np.ascontiguousarray(array)).reshape(old.shape)
    given = given.to(old.device, old.dtype)
    if 0 in old.stride() or given.stride() == old.stride():
        return given
    new = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device)
    return new.copy_(given)


@contextmanager
def _module_names(recorder: "_Recorder") -> Iterator[None]:
    """Tell the recorder which module is running."""
    names: dict[int, str] = {}

    def enter(module: nn.Module, args: Any) -> None:
        if not recorder.modules:
            names.update({id(m): name for name, m in module.named_modules(remove_duplicate=True)})
        recorder.modules.append(names.get(id(module), type(module).__name__))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        recorder.modules.pop()

    hooks = (
        torch_modules.register_module_forward_pre_hook(enter),
        torch_modules.register_module_forward_hook(leave, always_call=True),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Recorder(TorchDispatchMode):
    """Writes operations down as they are dispatched, below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Value] = []
        self.operations: list[Operation] = []
        self.tensors: dict[int, Tensor] = {}
        self.modules: list[str] = []
        self.leaves: dict[tuple[Kind, str], int] = {}
        self._numbers: dict[int, int] = {}
        self._kept: list[Tensor] = []
        self._sharing: dict[int, list[Tensor]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler, for seconds, though nothing is compiled here.
        return False

    def add(self, tensor: Tensor, kind: Kind, name: str = "", producer: int | None = None) -> int:
        """A new value, which the tensor holds from here on."""
        number = len(self.values)
        array = to_numpy(tensor) if tensor.layout == torch.strided else np.zeros(0)
        self.values.append(Value(number, array, dtype_name(tensor), kind, name, producer))
        self.tensors[number] = tensor
        if id(tensor) not in self._numbers:
            self._kept.append(tensor)
            self._sharing.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        self._numbers[id(tensor)] = number
        return number

    def number(self, tensor: Tensor) -> int:
        found = self._numbers.get(id(tensor))
        return self.add(tensor, "constant") if found is None else found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = pytree.tree_leaves((args, kwargs or {}))
        inputs = tuple(self.number(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        written = _written(func, args, kwargs or {})
        before = {id(t): t.clone() for t in written}
        for tensor in written:
            # What the value held is about to be overwritten where it lies.
            number = self._numbers[id(tensor)]
            self.tensors[number] = before[id(tensor)]
            self.values[number].array = to_numpy(before[id(tensor)])
        result = func(*args, **(kwargs or {}))
        outputs = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
        if not outputs or func is torch.ops.aten._local_scalar_dense.default:
            return result
        make_run = _runner_maker(func, args, kwargs or {}, written)
        attributes = _attributes(func, args, kwargs or {})
        self._write_down(str(func), make_run, inputs, outputs, attributes)
        for tensor in written:
            self._update_views(tensor)
        return result

    def _write_down(
        self,
        name: str,
        make_run: Callable[[Mapping[str, Any]], Callable],
        inputs: tuple[int, ...],
        outputs: list[Tensor],
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        number = len(self.operations)
        numbers = tuple(self.add(tensor, "computed", "", number) for tensor in outputs)
        enabled = torch.is_grad_enabled()
        self.operations.append(
            Operation(
                number,
                name,
                inputs,
                numbers,
                self._source(),
                make_run,
                lambda run: _pullback(run, enabled),
                attributes or {},
            )
        )

    def _source(self) -> Source:
        module = self.modules[-1] if self.modules else ""
        file, line, function = users_frame(sys._getframe(1)) or ("", 0, "")
        return Source(file, line, code_at(file, line) if line else "", function, module)

    def _update_views(self, written: Tensor) -> None:
        """Other tensors of the same memory hold new values too."""
        base, *views = self._sharing[written.untyped_storage().data_ptr()]
        place = (written.shape, written.stride(), written.storage_offset())
        if base is not written:

            def scatter(arrays: Sequence[Tensor]) -> list[Tensor]:
                return [torch.as_strided_scatter(arrays[0], arrays[1], *place)]

            inputs = (self._numbers[id(base)], self._numbers[id(written)])
            self._write_down("write into view", lambda _: scatter, inputs, [base])
        for view in views:
            if view is not written:
                self._renew(view, base)

    def _renew(self, view: Tensor, base: Tensor) -> None:
        place = (view.shape, view.stride(), view.storage_offset())

        def select(arrays: Sequence[Tensor]) -> list[Tensor]:
            return [torch.as_strided(arrays[0], *place)]

        self._write_down("view of written", lambda _: select, (self._numbers[id(base)],), [view])


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operation writes in place."""
    found = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[i] if i < len(args) else kwargs.get(argument.name)
            found += [t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)]
    return found


def _attributes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are no tensors, by their names in the schema."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return {
        name: value
        for name, value in given.items()
        if not any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))
    }


@dataclass(frozen=True)
class _Slot:
    """Where the tensor of this number goes in the arguments of an operation."""

    index: int


def _runner_maker(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], written: list[Tensor]
) -> Callable[[Mapping[str, Any]], Callable]:
    """From changed attributes to the operation as a function of its tensors.

    What it would write in place is copied first.
    """
    leaves, structure = pytree.tree_flatten((list(args), dict(kwargs)))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    overwritten = {id(t) for t in written}
    copied = {k for k, i in enumerate(places) if id(leaves[i]) in overwritten}
    slots = iter(range(len(places)))
    leaves = [_Slot(next(slots)) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, structure)
    names = [argument.name for argument in func._schema.arguments]

    def make(changes: Mapping[str, Any]) -> Callable:
        new_args = [changes.get(n, a) for n, a in zip(names, args, strict=False)]
        extra = {n: v for n, v in changes.items() if n not in names[: len(args)]}

        new_leaves, new_structure = pytree.tree_flatten((new_args, {**kwargs, **extra}))

        def run(arrays: Sequence[Tensor]) -> list[Tensor]:
            given = [a.clone() if k in copied else a for k, a in enumerate(arrays)]
            filled = [given[x.index] if isinstance(x, _Slot) else x for x in new_leaves]
            filled_args, filled_kwargs = pytree.tree_unflatten(filled, new_structure)
            result = func(*filled_args, **filled_kwargs)
            if isinstance(result, Tensor):
                return [result]
            return [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]

        return run

    return make


def _pullback(run: Callable, enabled: bool) -> Callable:
    """The derivative of one operation; none where the user's code had switched gradients off."""

    def pull_back(inputs: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list:
        leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in inputs]
        if not enabled or not any(leaf.requires_grad for leaf in leaves):
            return [None] * len(inputs)
        with torch.enable_grad(), sdpa_kernel([SDPBackend.MATH]):
            outputs = run(leaves)
        pairs = [
            (out, gradient)
            for out, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and out.requires_grad
        ]
        if not pairs:
            return [None] * len(inputs)
        outs, grads = zip(*pairs, strict=True)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(outs, wanted, grads, allow_unused=True))
        return [next(found) if leaf.requires_grad else None for leaf in leaves]

    return pull_back
