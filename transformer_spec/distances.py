"""Tables for positions that enter through scores: buckets of distance, slopes of heads."""

from functools import cache

import numpy as np


@cache  # An eager model asks for it in every call, and it takes thousands of integer powers.
def distance_buckets(num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance 0..max_distance; all longer ones share the last.

    Half of the buckets hold one distance each. Bucket e + j, with e = num_buckets / 2, begins where
    log(d / e) / log(max_distance / e) reaches j / e, at d**e e**j >= max_distance**j e**e: decided
    in integers, where a float32 logarithm would decide by its rounding.

    Source: Raffel et al. 2020, section 2.1, and their code.
    """
    exact = num_buckets // 2

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        shared = range(1, num_buckets - exact)
        return exact + sum(
            distance**exact * exact**j >= max_distance**j * exact**exact for j in shared
        )

    return np.array([bucket(d) for d in range(max_distance + 1)])


def alibi_slopes(num_heads: int) -> np.ndarray:
    """2**(-8 n / N) for heads n = 1..N where N is a power of two.

    Else the slopes of the next lower power M, and between them those that 2 M heads would add.

    Source: Press et al. 2022, section 3, and their code for other numbers of heads.
    """
    power = 2 ** int(np.log2(num_heads))
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-4 * np.arange(1, 2 * power + 1, 2) / power)
    return np.concatenate([slopes, between[: num_heads - power]])
