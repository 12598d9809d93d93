"""The same weights on both sides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parity.models.model import JaxModel, TorchModel
from parity.observe.settings import NotComparableError
from parity.programs.program import Program
from parity.weights.layout import Layout, Several, Step, Summed
from parity.weights.matching import find_map
from parity.weights.sections import Section, cut_up, find_sections, join_sections
from parity.weights.uses import find_uses
from parity.weights.weight_map import WeightMap, read_map

Whose = Literal["torch", "jax", "loaded"]
Arrays = dict[str, np.ndarray]
Model = TorchModel | JaxModel


@dataclass(frozen=True)
class Shared:
    """Both sides' arrays, and how gradients of the one are those of the other.

    Args:
        base, target: the arrays of the two sides.
        to_base_gradients: from the target's gradients by name to the base's.
        weight_map: the map between them; None between two models of one framework.
        parts_map: the same with sections in the place of arrays that JAX cuts up.
        sections: these.
    """

    base: Arrays
    target: Arrays
    to_base_gradients: Callable[[Mapping[str, np.ndarray]], Arrays]
    weight_map: WeightMap | None = None
    parts_map: WeightMap | None = None
    sections: Sequence[Section] = ()


def share_weights(
    torch_model: TorchModel,
    jax_model: JaxModel,
    whose: Whose,
    renames: Mapping[str, str],
    saved: str | None = None,
    record: Callable[[], tuple[Program, Program]] | None = None,
) -> Shared:
    """Give both sides the same weights, or leave both as they are.

    Arrays of torch's that nothing of JAX's is made of are no error: a bias that is not there shows
    in what is computed.

    Args:
        whose: the side whose weights both use; "loaded": each has its own.
        renames: JAX names, or patterns of them, to torch's.
        saved: the text of a map that takes the place of what is found.
        record: runs both sides to see what they do with their arrays, where names and shapes leave
            open what belongs together.
    Raises:
        NotComparableError: arrays of JAX's are left without a counterpart.
    """
    found = find_map(torch_model, jax_model, renames)
    sections: Sequence[Section] = ()
    if record and not _is_certain(found):
        found, sections = _find_by_use(torch_model, jax_model, renames, *record())
    if saved is not None:
        found = join_sections(found, sections, {n: a.shape for n, a in jax_model.arrays.items()})
        found = found.replaced(read_map(saved, found.torch_shapes, found.jax_shapes))
        sections = ()
    if found.missing_jax and whose != "loaded":
        found.require_complete()
    if whose == "jax" and found.missing_torch:
        found.require_complete()
    if not found.entries and (torch_model.trainable or jax_model.trainable):
        raise NotComparableError("no array of one side has a counterpart on the other")
    return shared_by(found, sections, torch_model, jax_model, whose)


def _is_certain(found: WeightMap) -> bool:
    """Whether names and shapes alone tell where every array belongs; in what order several are
    joined they do not.
    """
    joined = any(len(entry.torch) > 1 for entry in found.entries)
    return not (joined or found.alternatives or found.missing_torch or found.missing_jax)


def _find_by_use(
    torch_model: TorchModel,
    jax_model: JaxModel,
    renames: Mapping[str, str],
    torch_run: Program,
    jax_run: Program,
) -> tuple[WeightMap, Sequence[Section]]:
    """The map by what a run does with the arrays: of their parts, where every part has its own."""
    ours = find_uses(torch_run)
    if sections := find_sections(jax_run):
        theirs = find_uses(jax_run, {section.name: section.value for section in sections})
        cut = cut_up(jax_model, sections)
        found = find_map(torch_model, cut, renames, torch_uses=ours, jax_uses=theirs)
        if not found.missing_torch and not found.missing_jax:
            return found, sections
    theirs = find_uses(jax_run)
    return find_map(torch_model, jax_model, renames, torch_uses=ours, jax_uses=theirs), ()


def shared_by(
    parts_map: WeightMap,
    sections: Sequence[Section],
    torch_model: TorchModel,
    jax_model: JaxModel,
    whose: Whose,
) -> Shared:
    """Both sides' arrays by a map, perhaps of sections of JAX's."""
    shapes = {name: array.shape for name, array in jax_model.arrays.items()}
    found = join_sections(parts_map, sections, shapes)
    ours, theirs = dict(torch_model.arrays), dict(jax_model.arrays)
    if whose == "torch":
        theirs |= found.to_jax(_exact_in_sums(found, ours))
    if whose == "jax":
        ours |= found.to_torch(theirs)

    def to_base(gradients: Mapping[str, np.ndarray]) -> Arrays:
        return pull_back(found, gradients)

    return Shared(ours, theirs, to_base, found, parts_map, sections)


def _exact_in_sums(found: WeightMap, arrays: Arrays) -> Arrays:
    """The arrays, those that are added to others in float64: both sides run in it."""
    added = {n for e in found.entries if _most_summands(e.to_jax) > 1 for n in e.torch}
    return {n: a.astype(np.float64) if n in added else a for n, a in arrays.items()}


def share_alike(first: Model, second: Model, whose: Whose) -> Shared:
    """The same weights in two models of one framework: by name, else by order and shape.

    Raises:
        NotComparableError: the arrays are not the same ones.
    """
    partners = _partners(first.arrays, second.arrays)
    ours, theirs = dict(first.arrays), dict(second.arrays)
    if whose == "torch":
        theirs |= {partner: ours[name] for name, partner in partners.items()}
    if whose == "jax":
        ours |= {name: theirs[partner] for name, partner in partners.items()}

    def to_base(gradients: Mapping[str, np.ndarray]) -> Arrays:
        return {n: gradients[p] for n, p in partners.items() if p in gradients}

    return Shared(ours, theirs, to_base)


def _partners(ours: Arrays, theirs: Arrays) -> dict[str, str]:
    """Every array of the one model with the other's: of one name, else the next of its shape."""
    found = {n: n for n in ours if n in theirs and ours[n].shape == theirs[n].shape}
    free = [n for n in theirs if n not in found]
    for name in ours:
        if name in found:
            continue
        partner = next((n for n in free if theirs[n].shape == ours[name].shape), None)
        if partner is None:
            shape = tuple(ours[name].shape)
            raise NotComparableError(
                f"weights: {name} {shape} has no counterpart on the other side"
            )
        found[name] = partner
        free.remove(partner)
    if free:
        raise NotComparableError(f"weights: {free[0]} has no counterpart on the other side")
    return found


def pull_back(found: WeightMap, gradients: Mapping[str, np.ndarray]) -> Arrays:
    """Torch's gradients from JAX's: an array that is read twice has the sum of both."""
    made: Arrays = {}
    for entry in found.entries:
        gradient = gradients.get(entry.jax)
        if gradient is None:
            continue
        ids = found.element_ids(entry)
        total = np.zeros(sum(places.size for places in ids.values()), gradient.dtype)
        for layout in _summands(entry.to_jax):
            sources = layout.sources(ids).ravel()
            held = sources >= 0
            np.add.at(total, sources[held], gradient.ravel()[held])
        for name, places in ids.items():
            part = total[places.ravel()].reshape(places.shape)
            made[name] = made[name] + part if name in made else part
    return made


def _summands(layout: Layout) -> list[Layout]:
    """The layout once for each array of the sums in it."""
    count = _most_summands(layout)
    return [layout] if count == 1 else [_with_summand(layout, k) for k in range(count)]


def _most_summands(layout: Layout) -> int:
    inner = max((_most_summands(part) for part in layout.parts()), default=1)
    return len(layout.parts()) * inner if isinstance(layout, Summed) else inner


def _with_summand(layout: Layout, index: int) -> Layout:
    match layout:
        case Summed():
            return layout.items[index % len(layout.items)]
        case Several():
            return replace(layout, items=tuple(_with_summand(i, index) for i in layout.items))
        case Step():
            return replace(layout, of=_with_summand(layout.of, index))
    return layout
