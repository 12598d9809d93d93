"""Known mistakes that cannot be planted yet, and the feature that each one waits for."""

from parity.plants.waiting_generation import GENERATION

WAITING = GENERATION
