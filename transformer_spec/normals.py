"""Normal numbers of uniform ones, by the inverse of the normal distribution function.

NumPy's sums, products, quotients and roots are rounded as IEEE 754 asks, one at a time, so that the
same uniform number gives the same normal number, bit for bit, under every version and on every
machine. No logarithm of a library is asked for: those differ in the last place.
"""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# Numerators and denominators of algorithm AS 241's PPND16, coefficients from the lowest power up.
_MIDDLE = (
    (
        3.3871328727963666080, 1.3314166789178437745e2, 1.9715909503065514427e3,
        1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
        3.3430575583588128105e4, 2.5090809287301226727e3,
    ),
    (
        1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
        2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)  # fmt: skip
_TAIL = (
    (
        1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550,
        3.64784832476320460504, 1.27045825245236838258, 2.41780725177450611770e-1,
        2.27238449892691845833e-2, 7.74545014278341407640e-4,
    ),
    (
        1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
        1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)  # fmt: skip
_FAR_TAIL = (
    (
        6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
        2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
        2.71155556874348757815e-5, 2.01033439929228813265e-7,
    ),
    (
        1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
        7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)  # fmt: skip

# log 2 as a number whose products with small integers are exact, and what it lacks.
_LOG2_HIGH, _LOG2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LOG = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
    1.479819860511658591e-01,
)  # fmt: skip


def normal_quantile(p: Numbers) -> Numbers:
    """z with Phi(z) = p, for 0 < p < 1: standard normal where p is uniform.

    With q = p - 1/2 and r = sqrt(-log(min(p, 1 - p)))

        z = q A(0.425**2 - q**2)           |q| <= 0.425
        z = +-C(r - 1.6)                   r <= 5, that is 1.4e-11 <= p
        z = +-E(r - 5)                     down to 1e-316

    where A, C and E are quotients of polynomials of degree 7.

    Source: Wichura 1988, "Algorithm AS 241: The percentage points of the normal distribution",
    PPND16, accurate to about 1 part in 10**16.
    Differences: `jax.random.normal` is sqrt(2) erf_inv(2 p - 1) by formulas that changed with
    versions of jax; torch has the sine and cosine of Box and Muller.
    """
    q = p - 0.5
    z = q * _quotient(_MIDDLE, 0.180625 - q * q)
    outer = np.abs(q) > 0.425
    p = p[outer]
    r = np.sqrt(-log(np.minimum(p, 1 - p)))
    tails = np.where(r <= 5, _quotient(_TAIL, r - 1.6), _quotient(_FAR_TAIL, r - 5))
    z[outer] = np.copysign(tails, q[outer])
    return z


def log(x: Numbers) -> Numbers:
    """The natural logarithm of finite x > 0, within one unit in the last place.

    x = 2**n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), s = f / (2 + f):
    log x = n log 2 + f - f**2 / 2 + s (f**2 / 2 + R(s**2)).

    Source: FDLIBM, `__ieee754_log` (Sun Microsystems 1993).
    """
    fraction, exponent = np.frexp(x)
    low = fraction < 0.5**0.5
    f = np.where(low, 2 * fraction, fraction) - 1
    n = exponent - low
    s = f / (2 + f)
    half = 0.5 * f * f
    rest = s * s * _polynomial(_LOG, s * s)
    return n * _LOG2_HIGH - ((half - (s * (half + rest) + n * _LOG2_LOW)) - f)


def _quotient(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Numbers) -> Numbers:
    top, bottom = coefficients
    return _polynomial(top, x) / _polynomial(bottom, x)


def _polynomial(coefficients: tuple[float, ...], x: Numbers) -> Numbers:
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    return value
