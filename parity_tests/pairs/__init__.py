"""Pairs of models as strangers write them, and what the comparison must say of each.

Every file stands alone: `build_torch`, `build_jax` (the same function), and builders of faulty
ports. A line that holds a fault ends in `# fault`, or `# fault NAME` for `build_NAME` alone. What
is expected of each pair is in `table.py`; `reports/` holds pairs after public reports.

    python -m parity_tests.pairs [WORD ...]   # a table of what the comparison says
"""
