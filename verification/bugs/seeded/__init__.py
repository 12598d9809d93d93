"""Real porting mistakes, to be put into the torch twin one at a time.

Each swaps one function, method or value where it is used, for the length of a `with` in which the
twin is built and run. What finds differences between the twins has to find every one of them, say
where it is and say what it is.
"""

from verification.bugs.seeded import (
    attention,
    blocks,
    cached,
    conversion,
    dropout,
    embeddings,
    feed_forward,
    initializers,
    losses,
    masks,
    norms,
    optimizer,
    positions,
    precision,
    rotary,
    schedules,
)
from verification.bugs.seeded_bug import SeededBug

SEEDED_BUGS: tuple[SeededBug, ...] = (
    *attention.BUGS,
    *masks.BUGS,
    *positions.BUGS,
    *rotary.BUGS,
    *cached.BUGS,
    *norms.BUGS,
    *feed_forward.BUGS,
    *embeddings.BUGS,
    *blocks.BUGS,
    *losses.BUGS,
    *optimizer.BUGS,
    *schedules.BUGS,
    *initializers.BUGS,
    *dropout.BUGS,
    *conversion.BUGS,
    *precision.BUGS,
)
