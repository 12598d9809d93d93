"""Known mistakes that cannot be planted yet, and the feature that each one waits for."""

from verification.bugs.planted.waiting_generation import GENERATION

WAITING = GENERATION
