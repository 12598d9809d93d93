"""Devices, precision, and the table of measured differences at the end of a run."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

SLOW_TESTS = Path(__file__).parent / "slow_tests.txt"
LEDGER = pytest.StashKey[dict[str, dict[str, float]]]()


def optimize(wanted: bool) -> None:
    """Let XLA work on the speed of programs, or not; not every version of jax has the option."""
    import jax

    with suppress(AttributeError):
        jax.config.update("jax_disable_most_optimizations", not wanted)


def slow_tests() -> set[str]:
    """The names of the tests that are slow for their time alone."""
    lines = SLOW_TESTS.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    slow = slow_tests()
    for item in items:
        # A group of tests that share a process stands behind the name.
        if item.nodeid.removeprefix("parity_tests/").split("@")[0] in slow:
            item.add_marker("slow")
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_configure(config):
    device = config.getoption("--device")
    # Each of pytest's processes has its own jax; none may take a GPU's memory whole.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import torch

    from parity.observe.settings import make_comparable

    # Hundreds of programs are compiled and run a few times each: XLA is told not to work on their
    # speed. Tests that ask for `compiled_as_users_do`, and those that start train.py, are spared.
    optimize(device != "cpu")
    make_comparable()
    # Tensors are tiny here, and OpenMP's threads spin for each other when the machine is busy.
    torch.set_num_threads(1)
    config.stash[LEDGER] = defaultdict(dict)
    platform = jax.default_backend()
    if device not in ("auto", platform):
        raise pytest.UsageError(f"--device {device}: jax finds only {platform}")
    if device == "gpu" and not torch.cuda.is_available():
        raise pytest.UsageError("--device gpu: torch finds no CUDA device")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """What a process measured joins the table."""
    table = node.config.stash[LEDGER]
    for component, kinds in getattr(node, "workeroutput", {}).get("ledger", {}).items():
        for kind, value in kinds.items():
            table[component][kind] = max(table[component].get(kind, 0.0), value)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ledger"] = dict(session.config.stash[LEDGER])


def pytest_report_header(config):
    import flax
    import jax
    import optax
    import torch

    from verification.twins.pair import torch_device

    return [
        f"jax {jax.__version__}, flax {flax.__version__}, optax {optax.__version__}, "
        f"torch {torch.__version__}",
        f"devices: jax on {jax.devices()[0]}, torch on {torch_device()}",
        f"precision: x64 {'on' if jax.config.jax_enable_x64 else 'off'}, matmul "
        f"{jax.config.jax_default_matmul_precision}, torch matmul "
        f"{torch.get_float32_matmul_precision()}, TF32 "
        f"{'on' if torch.backends.cuda.matmul.allow_tf32 else 'off'}",
    ]


@pytest.fixture(scope="session")
def float64():
    """For tests in float64; a TPU has none, and they say so."""
    import jax

    if jax.default_backend() == "tpu":
        pytest.skip("a TPU has no float64; the float32 tests stand for this one")


@pytest.fixture
def compiled_as_users_do(request):
    """XLA's own level of optimization."""
    optimize(True)
    yield
    optimize(request.config.getoption("--device") != "cpu")


@pytest.fixture
def ledger(request):
    """record(component, differences): fail above 1e-12, and keep the largest for the table."""
    from parity.judge.errors import FLOAT64_TOLERANCE

    table = request.config.stash[LEDGER]

    def record(component, differences, tolerance=FLOAT64_TOLERANCE):
        for d in differences:
            kind = d.name.split(".")[0]
            table[component][kind] = max(table[component].get(kind, 0.0), d.error)
        worst = max(differences, key=lambda d: d.error)
        assert worst.error <= tolerance, f"{component}: {worst}"

    return record


def pytest_terminal_summary(terminalreporter, config):
    table = config.stash[LEDGER]
    if not table:
        return
    kinds = ("output", "parameter", "input")
    terminalreporter.section("largest float64 difference, norm-wise")
    heads = ("output", "parameter grads", "input grads")
    terminalreporter.write_line(f"{'':<34}" + "".join(f"{h:>18}" for h in heads))
    for component in sorted(table):
        cells = [table[component].get(kind) for kind in kinds]
        shown = "".join(f"{'-' if c is None else format(c, '.1e'):>18}" for c in cells)
        terminalreporter.write_line(f"{component:<34}{shown}")
