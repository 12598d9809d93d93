"""What a rotation does to queries and keys: by which angles, which dimensions, paired how."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from parity.explain.causes.evidence import Cause, Computed, Evidence, deviation, explains
from parity.explain.causes.rotary import LARGEST_SHIFT


@dataclass(frozen=True)
class Rotation:
    """A rotation of x [B, T, N, H] by cosines and sines [B or 1, T, C, P].

    Args:
        pairs: how many of each channel's pairs are rotated, from the first on; 0: x is as it was.
        neighbours: a pair is (0, 1), (2, 3), ...; else one of each half of a channel.
        index: whose index gives the angle, the position's or the head's.
        backwards: by the angle's negative.
    """

    pairs: int
    neighbours: bool
    index: str
    backwards: bool


def different_rotation(evidence: Evidence, value: Computed) -> Iterator[Cause]:
    leaf = value.point.name.rpartition(".")[2].split("@")[0]
    x = value.read.get(leaf.removesuffix("_rotated"))
    tables = [value.read.get(f"rotation[{i}]") for i in range(2)]
    if not leaf.endswith("_rotated") or x is None or any(t is None for t in tables):
        return
    cos, sin = (np.asarray(t, np.float64) for t in tables)
    right = list(_identify_rotations(x, cos, sin, value.reference))
    wrong = list(_identify_rotations(x, cos, sin, value.candidate)) if right else []
    if right and wrong:
        # One pair alone is of neighbours and of halves: the forms that are most alike count.
        ours, theirs = min(product(right, wrong), key=lambda pair: len(_differences(*pair, 1)))
        residual = deviation(_rotated(x, cos, sin, theirs), value.candidate)
        for text, fix in _differences(ours, theirs, cos.shape[-2]):
            yield Cause(text, fix, residual)
    elif right:
        yield from _other_positions(x, cos, sin, right[0], value.candidate)


def _other_positions(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, form: Rotation, y: np.ndarray
) -> Iterator[Cause]:
    """The right rotation, but of earlier or later positions; tokens are taken to be consecutive."""
    if cos.shape[1] < 2:
        return
    table = cos + 1j * sin
    frequencies = np.angle(table[:, 1:2] * table[:, :1].conj())
    for step in sorted(range(-LARGEST_SHIFT, LARGEST_SHIFT + 1), key=abs):
        moved = table * np.exp(1j * step * frequencies)
        predicted = _rotated(x, moved.real, moved.imag, form)
        if step and explains(predicted, y):
            where = f"{abs(step)} {'earlier' if step < 0 else 'later'}"
            text = f"rotated by the angles of positions {where} than the reference's"
            yield Cause(text, "rotate by the tokens' own positions", deviation(predicted, y))
            return


def _differences(ours: Rotation, theirs: Rotation, channels: int) -> list[tuple[str, str]]:
    """(text, fix) of each."""
    found = []
    if ours.pairs != theirs.pairs:
        right, wrong = (2 * channels * rotation.pairs for rotation in (ours, theirs))
        share = f", {Fraction(wrong, right)} of the reference's {right}" if right else ""
        found.append((f"rotates {wrong} dimensions of each head{share}", f"rotate {right} of them"))
    if ours.index != theirs.index:
        text = f"rotated by the index of the {theirs.index}, where the reference takes that of the "
        fix = "check which axis holds the positions where the rotation is applied"
        found.append((text + ours.index, fix))
    if ours.neighbours != theirs.neighbours:
        kinds = {True: "neighbours (0, 1), (2, 3)", False: "one of each half"}
        text = f"pairs are {kinds[theirs.neighbours]}, where the reference's are "
        found.append((text + kinds[ours.neighbours], "pair them as the reference does"))
    if ours.backwards != theirs.backwards:
        found.append(("rotated by the negative of each angle", "swap the signs of the sines"))
    return found


def _identify_rotations(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, y: np.ndarray
) -> Iterator[Rotation]:
    """The forms that give y; the ordinary ones come first."""
    indices = ["position", *(["head"] if x.shape[2] <= cos.shape[1] else [])]
    for pairs in range(cos.shape[-1], 0, -1):
        for index, backwards, neighbours in product(indices, (False, True), (False, True)):
            rotation = Rotation(pairs, neighbours, index, backwards)
            if explains(_rotated(x, cos, sin, rotation), y):
                yield rotation
    if explains(x, y):
        yield from (Rotation(0, neighbours, "position", False) for neighbours in (False, True))


def _rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, rotation: Rotation) -> np.ndarray:
    """x after the rotation; each pair as a complex number times exp(i angle)."""
    channels, width = cos.shape[-2], 2 * cos.shape[-2] * rotation.pairs
    angles = (cos + 1j * (-sin if rotation.backwards else sin))[..., : rotation.pairs]
    # Over [B, T, N, C, P]: the table's rows are those of the tokens, or read for the heads.
    angles = angles[:, :, None] if rotation.index == "position" else angles[:, None, : x.shape[2]]
    shape = (channels, rotation.pairs, 2) if rotation.neighbours else (channels, 2, rotation.pairs)
    split = x[..., :width].reshape(*x.shape[:-1], *shape)
    axis = -1 if rotation.neighbours else -2
    a, b = (part.squeeze(axis) for part in np.split(split, 2, axis))
    new = (a + 1j * b) * angles
    flat = np.stack([new.real, new.imag], axis).reshape(*x.shape[:-1], width)
    return np.concatenate([flat, x[..., width:]], -1)
