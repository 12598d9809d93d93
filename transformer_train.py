"""The name under which an installed package has train.py; in a clone, the way to it."""

from train import main, script

__all__ = ["main", "script"]
