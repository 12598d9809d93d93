"""One line that says what is going on, on a terminal alone."""

from typing import TextIO


class Progress:
    """Shows the latest line in place of the one before; nothing where nobody looks."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._width = 0
        self._shown = stream.isatty()

    def report(self, line: str) -> None:
        if self._shown:
            self._stream.write("\r" + line.ljust(self._width))
            self._stream.flush()
            self._width = len(line)

    def clear(self) -> None:
        if self._shown and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
