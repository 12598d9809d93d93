"""The layers of a torch model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from torch import nn

from parity.models.model import TorchModel
from parity.weights.layout import Layout, Part, Permuted, Shape, Source, permuted, reshaped
from parity.weights.units import Role, Slot, Unit, bare_slot, leaf_role
from parity.weights.uses import Use

_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._NormBase,
    nn.PReLU,
)


def torch_units(model: TorchModel, uses: Mapping[str, Use] | None = None) -> list[Unit]:
    """Every array of a torch model, by layer.

    Args:
        model: the model.
        uses: what a run does with the arrays, in the order of first use, where it is known.
    """
    order: dict[str, int] = {}
    for name in [*(uses or {}), *model.arrays]:
        order.setdefault(name, len(order))
    roles = {name: use.role for name, use in (uses or {}).items()}
    return [
        replace(
            unit,
            slots=tuple(replace(slot, use=roles.get(slot.name, "")) for slot in unit.slots),
            position=min(order[slot.name] for slot in unit.slots),
        )
        for unit in _units(model, uses or {})
    ]


def alias_units(model: TorchModel) -> list[Unit]:
    """The layers that hold tied arrays under their further names."""
    arrays = {alias: model.arrays[name] for alias, name in model.aliases.items()}
    return list(_units(replace(model, arrays=arrays, trainable=frozenset(arrays)), {}))


def _units(model: TorchModel, uses: Mapping[str, Use]) -> Iterator[Unit]:
    taken: set[str] = set()
    for path, module in model.module.named_modules() if model.module is not None else ():
        reader = _Reader(model, f"{path}." if path else "")
        for unit in reader.units(path, module):
            slots = tuple(slot for slot in unit.slots if slot.name not in taken)
            taken |= {slot.name for slot in slots}
            if slots:
                yield Unit(unit.path, unit.kind, slots)
    yield from _bare_units(model, [n for n in model.arrays if n not in taken], uses)


def _bare_units(model: TorchModel, names: Sequence[str], uses: Mapping[str, Use]) -> Iterator[Unit]:
    """Arrays of no known layer: `weight` and `bias` together, everything else by itself."""
    owners: dict[str, list[Slot]] = {}
    for name in names:
        owner, _, leaf = name.rpartition(".")
        shape = model.arrays[name].shape
        role = leaf_role(leaf, len(shape))
        # Of a matrix nobody knows which axis is contracted.
        slot = bare_slot(
            name, shape, name in model.trainable, "array" if role == "matrix" else role
        )
        slot = replace(slot, layout=Source(model.aliases.get(name, name)))
        if role in ("matrix", "array") and (use := uses.get(name, Use())).axes:
            slot = _as_used(slot, use)
        owners.setdefault(name if role == "array" else owner, []).append(slot)
    for owner, slots in owners.items():
        yield Unit(owner, "", tuple(slots))


def _as_used(slot: Slot, use: Use) -> Slot:
    """An array as the matrix [in, out] that a run multiplies by; a batch of them as it is."""
    shape = tuple(slot.shape[axis] for axis in use.axes)
    layout = permuted(slot.layout, use.axes)
    if use.batch:
        return replace(slot, layout=layout, shape=shape)
    size = (use.summed, prod(shape) // use.summed)
    return replace(slot, role="matrix", layout=reshaped(layout, shape, size), shape=size)


class _Reader:
    """Reads the arrays of one module."""

    def __init__(self, model: TorchModel, prefix: str):
        self.model, self.prefix = model, prefix

    def units(self, path: str, module: nn.Module) -> Iterator[Unit]:
        kind = type(module).__name__
        if isinstance(module, nn.Linear):
            yield Unit(path, "Linear", self._weighted("matrix", lambda n: (1, 0)))
        elif kind == "Conv1D" and hasattr(module, "nf"):
            # GPT-2's: a linear layer whose weight is [in, out].
            yield Unit(path, "Conv1D", self._weighted("matrix", lambda n: (0, 1)))
        elif isinstance(module, nn.modules.conv._ConvTransposeNd):
            yield Unit(path, kind, self._weighted("conv_transpose", lambda n: (*range(2, n), 0, 1)))
        elif isinstance(module, nn.modules.conv._ConvNd):
            yield Unit(path, kind, self._weighted("conv", lambda n: (*range(2, n), 1, 0)))
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            yield Unit(path, "Embedding", self._weighted("table", lambda n: (0, 1)))
        elif isinstance(module, nn.MultiheadAttention):
            yield from self._attention(path)
        elif isinstance(module, nn.RNNBase | nn.modules.rnn.RNNCellBase):
            yield from self._recurrent(path, module)
        elif isinstance(module, _NORMS):
            leaves: dict[str, Role] = {
                "weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"
            }  # fmt: skip
            slots = [self._flat(leaf, role) for leaf, role in leaves.items()]
            yield Unit(path, "norm", tuple(slot for slot in slots if slot))
        if gain := self._gain():
            yield Unit(f"{path}.weight", "weight_norm", (gain,))

    def _weighted(self, role: Role, axes) -> tuple[Slot, ...]:
        """The slots of a layer with one weight and perhaps a bias."""
        slots = []
        if name := self._weight():
            shape = self.model.arrays[name].shape
            order = axes(len(shape))
            layout = permuted(self._source(name), order)
            slots.append(self._slot(name, role, layout, tuple(shape[i] for i in order)))
        if bias := self._flat("bias", "bias"):
            slots.append(bias)
        return tuple(slots)

    def _source(self, name: str) -> Source:
        """The array itself; of a tied one, under its first name."""
        return Source(self.model.aliases.get(name, name))

    def _weight(self) -> str | None:
        """The name of the array behind `weight`: under weight norm its direction."""
        inside = "parametrizations.weight."
        leaves = ("weight", f"{inside}original1", f"{inside}original", "weight_v", "weight_orig")
        names = (self.prefix + leaf for leaf in leaves)
        return next((name for name in names if name in self.model.arrays), None)

    def _gain(self) -> Slot | None:
        """The length of every row of `weight`, under weight norm."""
        for leaf in ("parametrizations.weight.original0", "weight_g"):
            name = self.prefix + leaf
            if name in self.model.arrays:
                shape = self.model.arrays[name].shape
                size = (self.model.arrays[name].size,)
                return self._slot(name, "scale", reshaped(self._source(name), shape, size), size)
        return None

    def _flat(self, leaf: str, role: Role) -> Slot | None:
        name = self.prefix + leaf
        if name not in self.model.arrays:
            return None
        return self._slot(name, role, self._source(name), self.model.arrays[name].shape)

    def _slot(self, name: str, role: Role, layout: Layout, shape: Shape) -> Slot:
        return Slot(name, role, layout, shape, name in self.model.trainable)

    def _attention(self, path: str) -> Iterator[Unit]:
        """The projections into heads; the one out of them is a Linear of its own."""
        if weight := self._flat("in_proj_weight", "matrix"):
            width, inner = weight.shape
            slots = [self._slot(weight.name, "matrix", Permuted(weight.layout, (1, 0)),
                                (inner, width))]  # fmt: skip
            if bias := self._flat("in_proj_bias", "bias"):
                slots.append(bias)
            yield Unit(f"{path}.in_proj".lstrip("."), "Linear", tuple(slots))
            return
        bias = self._flat("in_proj_bias", "bias")
        for i, leaf in enumerate("qkv"):
            weight = self._flat(f"{leaf}_proj_weight", "matrix")
            if weight is None:
                continue
            width, inner = weight.shape
            layout = Permuted(weight.layout, (1, 0))
            slots = [self._slot(weight.name, "matrix", layout, (inner, width))]
            if bias:
                part = Part(bias.layout, 0, i * width, (i + 1) * width)
                slots.append(self._slot(bias.name, "bias", part, (width,)))
            yield Unit(f"{path}.{leaf}_proj".lstrip("."), "Linear", tuple(slots))

    def _recurrent(self, path: str, module: nn.Module) -> Iterator[Unit]:
        """One unit for every layer and direction."""
        suffixes = sorted(
            {name.removeprefix(self.prefix + "weight_ih") for name in self.model.arrays
             if name.startswith(self.prefix + "weight_ih")},
            key=lambda suffix: (len(suffix.removesuffix("_reverse")), suffix),
        )  # fmt: skip
        family = next(f for f in ("LSTM", "GRU", "RNN") if f in type(module).__name__)
        for suffix in suffixes:
            leaves = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            slots = [self._flat(leaf + suffix, "array") for leaf in leaves]
            yield Unit(path + suffix, family, tuple(slot for slot in slots if slot))
