"""How a run is asked to stop early."""

import signal
from typing import Any


class Interruption:
    """Ctrl-C and SIGTERM stop a run after the update in progress; a second one stops it at once.

    To stop inside of an update would leave parameters whose buffers are already donated.
    """

    def __init__(self):
        self.number: int | None = None

    def __enter__(self) -> "Interruption":
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers: dict[int, Any] = {
            number: signal.signal(number, self._ask) for number in numbers
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _: object) -> None:
        self.number = number
        signal.signal(number, self._handlers[number])

    @property
    def status(self) -> int | None:
        """The exit status that shells expect: 130 after Ctrl-C, 143 after SIGTERM."""
        return None if self.number is None else 128 + self.number
