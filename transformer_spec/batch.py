"""What one update or one evaluation reads, in arrays of any framework."""

from typing import Any, NamedTuple


class Batch(NamedTuple):
    """The keyword arguments of a model's call, and what it should answer.

    labels: int [B, T], the token after each input token. label_mask: bool [B, T], True where a loss
    counts it.
    """

    inputs: dict[str, Any]
    labels: Any
    label_mask: Any

    def num_tokens(self) -> int:
        """The tokens that a model reads, without padding rows: those of rows that count."""
        rows = self.label_mask.any(axis=1)
        return sum(int(rows.sum()) * ids.shape[1] for ids in self.inputs.values())

    def parts(self, count: int) -> list["Batch"]:
        """The batch split into `count` small ones of equally many rows, in order.

        Raises:
            ValueError: `count` does not divide the rows.
        """
        rows = self.labels.shape[0]
        if rows % count:
            raise ValueError(
                f"batch: {rows} rows are not usable; they must be divisible by {count}"
            )
        size = rows // count
        return [
            Batch(
                {name: array[start : start + size] for name, array in self.inputs.items()},
                self.labels[start : start + size],
                self.label_mask[start : start + size],
            )
            for start in range(0, rows, size)
        ]
