"""Tools that show where two models agree, how closely, and why they do not."""

from parity.pair import Result, compare
from parity.settings import NotComparableError

__all__ = ["NotComparableError", "Result", "compare"]
