"""Where gradients part, of two programs whose values agree."""

from collections.abc import Mapping

import numpy as np

from parity.align.layouts import lay_out, same
from parity.align.locate import Alignment
from parity.explain.edits.backward import find_gradient_edit
from parity.explain.faults import Fault, distinct

# Beside the largest gradient there is: what cancels to less is rounding.
_NOISE = 1e-13


def find_backward_fault(
    alignment: Alignment, weights: tuple[Mapping[int, np.ndarray], Mapping[int, np.ndarray]]
) -> Fault | None:
    """The last value whose gradients differ while those of all that is computed later agree.

    Args:
        alignment: of the two programs, the base as its forward faults left it.
        weights: of the outputs of the base and of the target, in the sum that is differentiated.
    """
    ours = alignment.state.adjoints(weights[0])
    theirs = alignment.target.adjoints(weights[1])
    noise = _NOISE * max((float(np.linalg.norm(a)) for a in ours.values()), default=0.0)
    for number in sorted(alignment.matches, reverse=True):
        if number in alignment.outputs or _agrees(alignment, number, ours, theirs, noise):
            continue
        edit = find_gradient_edit(
            alignment.state, alignment.target, alignment.matches, ours, theirs
        )
        base_places = [op.source for op in alignment.state.readers.get(number, ())]
        readers = alignment.target.readers()
        copies = [target for target, _ in alignment.matches[number]]
        target_places = [op.source for copy in copies for op in readers.get(copy, ())]
        if edit is not None:
            base_places.insert(0, edit.base_source)
            target_places.insert(0, edit.target_source)
        error = _error(alignment, number, ours, theirs)
        return Fault("backward", distinct(base_places), distinct(target_places), error, edit)
    return None


def _agrees(
    alignment: Alignment,
    number: int,
    ours: Mapping[int, np.ndarray],
    theirs: Mapping[int, np.ndarray],
    noise: float,
) -> bool:
    """Whether the gradient by a value is that by one of the values that it is matched with."""
    wanted = ours.get(number)
    for target, axes in alignment.matches[number]:
        found = theirs.get(target)
        norms = [0.0 if a is None else float(np.linalg.norm(a)) for a in (wanted, found)]
        if max(norms) <= noise:
            return True
        if wanted is None or found is None:
            continue
        laid_out = lay_out(found, axes, wanted.shape)
        if same(laid_out, wanted, alignment.tolerance):
            return True
        if float(np.linalg.norm(laid_out - wanted)) <= noise:
            return True
    return False


def _error(alignment: Alignment, number: int, ours, theirs) -> float:
    target, axes = alignment.matches[number][0]
    wanted, found = ours.get(number), theirs.get(target)
    if wanted is None or found is None or not np.linalg.norm(wanted):
        return np.inf
    gap = np.linalg.norm(lay_out(found, axes, wanted.shape) - wanted)
    return float(gap / np.linalg.norm(wanted))
