"""The smallest edit that makes what follows a difference agree with the target."""

from collections.abc import Callable, Iterator

import numpy as np

from parity.align.locate import Alignment, Pair
from parity.explain.edits.arrangements import rearrangements
from parity.explain.edits.attributes import other_attributes, other_numbers
from parity.explain.edits.convolutions import other_convolutions
from parity.explain.edits.edit import Edit, Proposal
from parity.explain.edits.functions import other_functions, other_layers, other_reductions
from parity.explain.edits.indices import other_indices, other_rows
from parity.explain.edits.insertions import inserted_layers
from parity.explain.edits.masks import other_masks
from parity.explain.edits.operands import additions, bypasses, other_operands, repetitions
from parity.explain.edits.rotations import other_rotations
from parity.explain.edits.search import FEWEST_NUMBERS, Search
from parity.explain.edits.tables import other_tables

Kind = Callable[[Search], Iterator[Proposal]]

# The most telling first: what a later kind says of the same values says less.
KINDS: tuple[Kind, ...] = (
    other_masks,
    other_tables,
    other_rotations,
    other_functions,
    other_layers,
    other_attributes,
    other_convolutions,
    other_reductions,
    bypasses,
    other_indices,
    other_rows,
    other_operands,
    rearrangements,
    inserted_layers,
    other_numbers,
    repetitions,
    additions,
)


def find_edit(alignment: Alignment, pair: Pair) -> Edit | None:
    """The first edit, of the most telling kind, that reproduces what follows the pair; None: none.

    Args:
        alignment: base and target as they are, up to this difference.
        pair: from `Alignment.best_pair`.
    """
    for goal in (pair.whole, pair):
        edit = None if goal is None else _find(Search(alignment, goal))
        if edit is not None:
            return edit
    return None


def _find(search: Search) -> Edit | None:
    if sum(array.size for array in search.checkpoints.values()) < FEWEST_NUMBERS:
        return None
    with np.errstate(all="ignore"):
        for kind in KINDS:
            for proposal in kind(search):
                if search.accepts(proposal.operations):
                    return _as_edit(search, proposal)
                if search.is_exhausted:
                    return None
    return None


def _as_edit(search: Search, proposal: Proposal) -> Edit:
    edited = proposal.operations
    lines = [op.source for op in edited if op.source.line]
    return Edit(
        edited,
        proposal.base,
        proposal.target,
        proposal.fix_base or f"use {proposal.target}",
        proposal.fix_target or f"use {proposal.base}",
        base_source=proposal.origin or (lines[0] if lines else edited[0].source),
        target_source=search.target_source(edited),
    )
