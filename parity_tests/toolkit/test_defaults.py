"""The page of defaults: up to date, and read from the libraries."""

import functools

import optax
import pytest
import torch

from parity_tests.processes import ROOT
from verification import defaults
from verification.__main__ import main
from verification.defaults.facts import facts


def values(page: str) -> list[str]:
    """All but the line that says which versions were read."""
    lines = page.splitlines()
    assert sum(line.startswith("Read from ") for line in lines) == 1
    return [line for line in lines if not line.startswith("Read from ")]


def test_the_page_is_what_the_installed_libraries_say():
    written = (ROOT / "docs" / "framework_defaults.md").read_text(encoding="utf-8")
    assert values(written) == values(defaults.page())


def test_the_two_sides_of_every_line_differ_or_differ_from_ours():
    for fact in facts():
        assert len({fact.flax, fact.torch, fact.here}) >= 2, fact
        assert all((fact.what, fact.flax, fact.torch, fact.here)), fact


def test_another_default_is_read(monkeypatch):
    """As a release would change them: one in a signature, one in what a function does."""
    before = values(defaults.page())

    class AdamW(torch.optim.AdamW):
        def __init__(self, params, lr=1e-3, weight_decay=0.25, **rest):
            super().__init__(params, lr=lr, weight_decay=weight_decay, **rest)

    AdamW.__module__ = torch.optim.AdamW.__module__
    clip = torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(torch.optim, "AdamW", AdamW)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", functools.partial(_exact, clip))
    changed = [line for line in values(defaults.page()) if line not in before]
    assert [line.split(" | ")[0] for line in changed] == [
        "| decay of AdamW",
        "| clipping by the global norm n to c",
    ]
    assert "`torch.optim.AdamW(weight_decay=0.25)`" in changed[0]
    assert "`torch.nn.utils.clip_grad_norm_`: c / n |" in changed[1]


def _exact(clip, parameters, limit):
    """Without what torch adds to the norm."""
    clip(parameters, limit * (5 + 1e-6) / 5)


@pytest.mark.slow
def test_the_command_prints_all_of_them(capsys):
    assert main(["defaults"]) == 0
    shown = capsys.readouterr().out
    assert "optax.adamw(weight_decay=0.0001)" in shown
    assert f"read from optax {optax.__version__}" in shown
    assert main(["defaults", "--json"]) == 0
    assert '"what": "GELU"' in capsys.readouterr().out
