"""Somebody else's models, tiny and random, beside our twins: transformers' own classes."""
