"""Which parts of torch's arrays a map reads."""

from collections.abc import Iterable, Iterator, Mapping

from parity.weights.layout import Layout, Part, Shape, Source


def unread(layouts: Iterable[Layout], shapes: Mapping[str, Shape]) -> list[str]:
    """Torch's arrays that no layout reads, or the rows of them, each with its shape."""
    rows: dict[str, list[tuple[int, int]]] = {name: [] for name in shapes}
    for layout in layouts:
        for name, axis, start, stop in _reads(layout):
            if name in rows:
                whole = axis != 0
                rows[name].append((0, shapes[name][0] if shapes[name] else 1) if whole
                                  else (start, stop))  # fmt: skip
    missing = []
    for name, shape in shapes.items():
        end = 0
        gaps = []
        length = shape[0] if shape else 1
        for start, stop in [*sorted(rows[name]), (length, length)]:
            if start > end:
                gaps.append((end, start))
            end = max(end, stop)
        missing += [
            f"{name} {shape}" if gap == (0, length) else f"{name} {shape} rows {gap[0]}:{gap[1]}"
            for gap in gaps
        ]
    return missing


def _reads(layout: Layout) -> Iterator[tuple[str, int, int, int]]:
    """(name, axis, start, stop) of every array that is read; axis -1: the whole of it."""
    if isinstance(layout, Source):
        yield layout.name, -1, 0, 0
    elif isinstance(layout, Part) and isinstance(layout.of, Source):
        yield layout.of.name, layout.axis, layout.start, layout.stop
    else:
        for part in layout.parts():
            yield from _reads(part)
