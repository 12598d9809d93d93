"""The inverse of the normal distribution function: known values, and what holds between them."""

import math

import numpy as np
import pytest

from transformer_spec.normals import log, normal_quantile

# From mpmath 1.3 in 50 digits: the root z of log(ncdf(z)) = log(p), p the float64 nearest to it.
KNOWN = [
    (5e-324, -38.467405617144346251),
    (1e-300, -37.047096299361199237),
    (1e-100, -21.273453560965324294),
    (1e-50, -14.933337534788488981),
    (1e-20, -9.2623400897984075796),
    (1e-12, -7.0344838253011319326),
    (1.2e-11, -6.6793526565015223761),
    (2e-11, -6.6040775904056342776),
    (1e-9, -5.9978070150076868614),
    (1e-6, -4.7534243088228989573),
    (1e-3, -3.0902323061678135354),
    (0.01, -2.3263478740408410931),
    (0.022750131948179207, -2.0),
    (0.0749999, -1.4395321773759005864),
    (0.0750001, -1.4395307645017296865),
    (0.1, -1.2815515655446004353),
    (0.25, -0.6744897501960817432),
    (0.4, -0.25334710313579974132),
    (0.49, -0.025068908258711058033),
    (0.4999999, -2.5066282747031065135e-7),
]


@pytest.mark.parametrize(("p", "expected"), KNOWN)
def test_known_values(p, expected):
    """Within 5 units in the last place: 4.6 is the most of 2,300 numbers held against mpmath."""
    assert abs(normal_quantile(np.array([p]))[0] - expected) <= 5 * np.spacing(-expected)


def test_it_inverts_the_distribution_function_from_end_to_end():
    """Phi from the C library's erfc; its own error and that of z grow with z**2."""
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0, 0.5, 10_000), 10.0 ** -rng.uniform(0.5, 300, 10_000)])
    z = normal_quantile(p)
    found = np.array([math.erfc(-value / 2**0.5) / 2 for value in z])
    assert (np.abs(found - p) <= 2.0**-52 * (4 + 5 * z**2) * p).all()


def test_it_is_odd_about_one_half_and_never_falls():
    u = (np.random.default_rng(0).integers(2**52, size=20_000) + 0.5) / 2**52
    np.testing.assert_array_equal(normal_quantile(1 - u), -normal_quantile(u))
    assert normal_quantile(np.array([0.5])) == 0
    # Across the seams of its three formulas a step must not be backwards.
    for seam in (0.075, 0.925, math.exp(-25)):
        around = seam * (1 + np.arange(-500, 501) * 1e-13)
        assert (np.diff(normal_quantile(around)) > 0).all(), seam


def test_the_largest_numbers_that_are_drawn():
    ends = np.array([2.0**-53, 1 - 2.0**-53])
    np.testing.assert_array_equal(normal_quantile(ends).round(6), [-8.209536, 8.209536])


def test_logarithm():
    """Within a unit in the last place of the C library's, from end to end."""
    rng = np.random.default_rng(0)
    x = np.concatenate([10.0 ** rng.uniform(-323, 308, 10_000), rng.uniform(0.5, 2, 10_000), [1.0]])
    expected = np.array([math.log(value) for value in x])
    assert (np.abs(log(x) - expected) <= np.spacing(np.abs(expected))).all()
