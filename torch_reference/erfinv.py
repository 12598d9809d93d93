"""The inverse of the error function as XLA computes it, polynomial for polynomial.

torch.erfinv is as right and rounds otherwise: thousands of units in the last place lie between the
two near 0, so that a normal number made by one is not the number made by the other.

Source: Giles 2012, "Approximating the erfinv function": a polynomial in w = -log(1 - x**2) in the
middle, others in sqrt(w) in the tails. In float64 w itself comes from Moshier's rational
approximation of log1p (Cephes), which XLA uses up to |x**2| < sqrt(2) - 1.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# Coefficients from the highest power down.
_MIDDLE32 = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL32 = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip
_MIDDLE64 = (
    -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
    1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
    6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
    2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
    4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
    0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
    0.24015818242558961693, 1.6536545626831027356,
)  # fmt: skip
_TAIL64 = (
    2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
    1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
    2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
    6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
    0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
    -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334,
    3.0838856104922207635,
)  # fmt: skip
_END64 = (
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
    -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
    2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
    -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
    7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
    1.0103004648645343977, 4.8499064014085844221,
)  # fmt: skip
_LOG1P_TOP = (
    4.5270000862445199635215e-5, 4.9854102823193375972212e-1, 6.5787325942061044846969,
    2.9911919328553073277375e1, 6.0949667980987787057556e1, 5.7112963590585538103336e1,
    2.0039553499201281259648e1,
)  # fmt: skip
_LOG1P_BOTTOM = (
    1.0, 1.5062909083469192043167e1, 8.3047565967967209469434e1, 2.2176239823732856465394e2,
    3.0909872225312059774938e2, 2.1642788614495947685003e2, 6.0118660497603843919306e1,
)  # fmt: skip


def erfinv(x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """y with erf(y) = x, for |x| <= 1, in float32 or float64."""
    found = _factor32(x) if x.dtype == torch.float32 else _factor64(x)
    return torch.where(x.abs() == 1, x * torch.inf, found * x)


def _factor32(x: Tensor) -> Tensor:
    w = -torch.log1p(-x * x)
    return torch.where(w < 5, _polynomial(_MIDDLE32, w - 2.5), _polynomial(_TAIL32, w.sqrt() - 3.0))


def _factor64(x: Tensor) -> Tensor:
    w = -_log1p64(-x * x)
    tails = torch.where(
        w < 16, _polynomial(_TAIL64, w.sqrt() - 3.25), _polynomial(_END64, w.sqrt() - 5.0)
    )
    return torch.where(w < 6.25, _polynomial(_MIDDLE64, w - 3.125), tails)


def _log1p64(x: Tensor) -> Tensor:
    square = x * x
    ratio = _polynomial(_LOG1P_TOP, x) / _polynomial(_LOG1P_BOTTOM, x)
    near = x + (-0.5 * square + x * (square * ratio))
    return torch.where(x.abs() < 2**0.5 - 1, near, torch.log1p(x))


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value
