"""All that an update reads and writes, as named arrays of NumPy: what both backends save and load.

Parameters and moments bear the names of `transformer_spec.naming`, and are laid out as torch's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_spec import naming

Named = dict[str, np.ndarray]
# Whose numbers a dropout key stands for, in both backends.
STREAMS = "threefry2x32"


@dataclass(frozen=True)
class NamedState:
    """A TrainState of either backend.

    Args:
        step: the updates behind it, which is Adam's count too.
        dropout_key: uint32 [2], the key that each update folds its own number into.
        params: the parameters.
        first_moment, second_moment: Adam's, under the parameters' names; zero before update 1.
    """

    step: int
    dropout_key: np.ndarray
    params: Named
    first_moment: Named
    second_moment: Named

    def groups(self) -> dict[str, Named]:
        return {name: getattr(self, name) for name in GROUPS}

    def check(self, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
        """Refuse what is not a whole state of these parameters.

        Raises:
            ValueError: a name, shape or dtype is another, or a value is NaN or infinite; all that
                is wrong with the first such group is listed.
        """
        key = self.dropout_key
        if self.step < 0 or key.dtype != np.uint32 or key.shape != (2,):
            raise ValueError(f"step {self.step}, dropout_key {key!r}: not a count and two words")
        for group, named in self.groups().items():
            try:
                naming.check_named(named, shapes)
            except ValueError as error:
                raise ValueError(f"{group}: {error}") from None
            mistyped = [f"{name} is {a.dtype}" for name, a in named.items() if a.dtype != dtype]
            if mistyped:
                raise ValueError(f"{group}: {', '.join(mistyped)}; they must be {dtype}")
        if bad := self.not_finite():
            raise ValueError(f"{bad[0]} is not finite")

    def not_finite(self) -> list[str]:
        """The arrays that hold a NaN or an infinity, under names for a message."""
        return [
            f"{group.replace('_', ' ')} of {name}" if group != "params" else name
            for group, named in self.groups().items()
            for name, array in sorted(named.items())
            if not is_finite(array)
        ]


GROUPS = ("params", "first_moment", "second_moment")


def is_finite(array: Any) -> bool:
    """Whether all values are finite. Minimum and maximum propagate NaN, and take no memory."""
    return array.size == 0 or bool(np.isfinite(array.min()) and np.isfinite(array.max()))
