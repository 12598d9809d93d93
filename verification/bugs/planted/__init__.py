"""Real porting mistakes, to be planted into the torch twin one at a time.

Each plant swaps one function, method or value where it is used, for the length of a `with` in which
the twin is built and run. What finds differences between the twins has to find every one of them,
say where it sits and say what it is.
"""

from verification.bugs.planted import (
    attention,
    blocks,
    cached,
    checkpoint,
    clipping,
    conversion,
    distances,
    dropout,
    embeddings,
    feed_forward,
    initializers,
    losses,
    masks,
    norms,
    optim,
    positions,
    precision,
    rotary,
    schedules,
)
from verification.bugs.planted.case import Case
from verification.bugs.planted.cases import CASES
from verification.bugs.planted.plant import Plant, Waiting
from verification.bugs.planted.waiting import WAITING

__all__ = ["CASES", "PLANTS", "WAITING", "Case", "Plant", "Waiting"]

PLANTS: tuple[Plant, ...] = (
    *attention.PLANTS,
    *masks.PLANTS,
    *positions.PLANTS,
    *rotary.PLANTS,
    *distances.PLANTS,
    *cached.PLANTS,
    *norms.PLANTS,
    *feed_forward.PLANTS,
    *embeddings.PLANTS,
    *blocks.PLANTS,
    *losses.PLANTS,
    *optim.PLANTS,
    *schedules.PLANTS,
    *clipping.PLANTS,
    *initializers.PLANTS,
    *dropout.PLANTS,
    *conversion.PLANTS,
    *checkpoint.PLANTS,
    *precision.PLANTS,
)
