"""Neither package brings in the other's framework; the two mirror each other name for name."""

import ast
from pathlib import Path

import pytest

from parity_tests.processes import ROOT, run_python

FRAMEWORKS = {"jax", "flax", "optax", "torch", "transformers", "gguf"}
FORBIDDEN = {
    "flax_transformer": {"torch", "transformers", "gguf"},
    "torch_reference": {"jax", "flax", "optax", "transformers", "gguf"},
    "transformer_spec": FRAMEWORKS,
    "transformer_hub": FRAMEWORKS,
    "transformer_training": FRAMEWORKS,
}
MODULES = [
    (package, ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for package in FORBIDDEN
    for path in sorted((ROOT / package).rglob("*.py"))
]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_importing_every_module_leaves_the_other_framework_out(package):
    """One process per package imports module by module and names the first that leaks."""
    names = [name for owner, name in MODULES if owner == package]
    run_python(
        f"import importlib, sys\n"
        f"for name in {names!r}:\n"
        f"    importlib.import_module(name)\n"
        f"    leaked = {FORBIDDEN[package]!r} & set(sys.modules)\n"
        f"    assert not leaked, f'{{name}} imports {{leaked}}'\n"
    )


@pytest.mark.parametrize(("package", "module"), MODULES, ids=[name for _, name in MODULES])
def test_no_source_file_names_the_other_framework(package, module):
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in found} & FORBIDDEN[package]


def public(package: str) -> dict[str, list[str]]:
    """File -> the classes and functions it defines at top level, in order."""
    return {
        path.name: [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        ]
        for path in sorted((ROOT / package).glob("*.py"))
    }


# What one framework has by itself: Linen hands keys to its dropout, its modules are applied to
# parameters kept apart, shapes stand in for an initialized tree; optax brings its own clipping;
# torch's casts reach tables.
ONE_SIDED = {
    "compiled_train_step",
    "set_dropout_keys",
    "apply",
    "parameter_template",
    "clip_by_global_norm",
    "ExactTable",
    # Under jit, where Flax's trainer runs, ids cannot be read; torch's says that it need not.
    "unchecked_ids",
}


# jax has random bits; torch is given the same ones.
ONE_SIDED_FILES = {"random.py"}


def test_the_twins_mirror_each_other_file_for_file_and_name_for_name():
    flax, torch = public("flax_transformer"), public("torch_reference")
    assert list(flax) == [name for name in torch if name not in ONE_SIDED_FILES]
    for name in flax:
        ours = [n for n in flax[name] if n not in ONE_SIDED]
        theirs = [n for n in torch[name] if n not in ONE_SIDED]
        assert ours == theirs, name
