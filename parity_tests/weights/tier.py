"""The tier of published weights: run by `pytest -m weights` alone; its figures end the run."""

import pytest

from parity_tests.tiers import Tier

COLUMNS = (
    "twins, float64",
    "original, float64",
    "float32: flax / torch",
    "known answer",
    "there and back",
    "opened by transformers",
)
TIER = Tier(
    "weights",
    "published weights: largest difference, norm-wise, and known answers",
    "model",
    COLUMNS,
)


def pytest_configure(config):
    config.pluginmanager.register(TIER, "published weights")


@pytest.fixture(scope="session")
def figure():
    """record(family, column, text): a cell of the table."""
    return TIER.record
