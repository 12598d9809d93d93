"""What happens in the training steps of one side: named arrays, step by step, in float64."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Named = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Step:
    """One training step.

    Args:
        loss: None where the user's step does not return it.
        gradients: as the loss gives them, summed over the step's backward passes; empty: unseen.
        clipped: as the optimizer gets them; empty where they are not seen apart.
        before, after: parameters.
        statistics: buffers after the step, such as running means.
        averages: further copies of the parameters that the step keeps, by name, after it.
        rates: of each of the optimizer's groups; empty where they are not seen.
    """

    loss: float | None
    gradients: Named
    clipped: Named
    before: Named
    after: Named
    statistics: Named = field(default_factory=dict)
    averages: Mapping[str, Named] = field(default_factory=dict)
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A user's training, of either framework.

    Args:
        framework: torch or jax.
        parameters: by name.
        statistics: buffers by name.
        run: (parameters, statistics, batches) to the steps; the user's own objects are unchanged.
        update: (parameters, gradients of every update) to [(before, after, rates)]: the optimizer
            alone; None where it is not seen.
        hints: settings that a solved constant may be near to.
    """

    framework: str
    parameters: Named
    statistics: Named
    run: Callable[[Named, Named, Sequence[Any]], list[Step]]
    update: Callable[[Named, Sequence[Named]], "list[Update]"] | None = None
    hints: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class Update:
    """One update by the optimizer alone."""

    before: Named
    after: Named
    rates: tuple[float, ...] = ()
