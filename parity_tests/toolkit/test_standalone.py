"""The tool stands alone: of the project it imports the tap, and it works without the rest."""

import ast
import textwrap

import pytest

from parity_tests.processes import ROOT, run_python
from parity_tests.toolkit.test_parity_command import PAIR

PROJECT = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"train"}
FILES = sorted((ROOT / "parity").rglob("*.py"))


def imported(tree: ast.AST) -> set[str]:
    """Every module that a file imports, at its top or inside a function."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    members = {
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return plain | members


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_of_the_project_the_tool_imports_the_tap_alone(path):
    of_project = {n for n in imported(ast.parse(path.read_text())) if n.split(".")[0] in PROJECT}
    assert {n for n in of_project if not n.startswith("parity.")} <= {"transformer_spec.taps"}


def test_a_pair_is_compared_where_nothing_else_of_the_project_can_be_imported(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(PAIR))
    absent = sorted({"transformers", "gguf", "optax", *PROJECT} - {"parity", "transformer_spec"})
    said = run_python(
        f"import sys\n"
        f"sys.modules |= dict.fromkeys({absent!r})\n"
        f"from parity.cli import main\n"
        f"mine = {str(tmp_path / 'mine.py')!r}\n"
        f"status = main(['compare', mine + ':build_torch', mine + ':wrong', '--inputs', '2x5x12',\n"
        f"               '--rename', 'Dense_0=up', '--rename', 'Dense_1=down'])\n"
        f"print('status', status)\n"
    )
    assert "DIFFERENT in float64" in said
    assert said.endswith("status 1\n")
