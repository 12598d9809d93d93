"""Rows of tokens of several lengths as one array."""

from collections.abc import Sequence

import numpy as np


def padded(rows: Sequence[Sequence[int]], padding: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ids [B, T] with padding on the right, and where the tokens are."""
    length = max(map(len, rows))
    ids = np.full((len(rows), length), padding, np.int32)
    keep = np.zeros(ids.shape, bool)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        keep[i, : len(row)] = True
    return ids, keep
