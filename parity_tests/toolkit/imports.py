"""Which folder imports which, read from the source.

`python -m parity_tests.toolkit.imports` prints one line for each folder. Every import counts,
wherever it stands: at the top of a file, inside a function, under `TYPE_CHECKING`. A string that is
the dotted name of a module counts too, because `import_module` is given such strings.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "transformer_spec",
    "flax_transformer",
    "torch_reference",
    "transformer_hub",
    "transformer_training",
    "train",
    "parity",
    "verification",
    "parity_tests",
)
Graph = Mapping[str, set[str]]


def module_files() -> dict[str, Path]:
    """Dotted name -> file of every module of the project."""
    paths = [ROOT / "train.py"]
    paths += [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {_module_name(path): path for path in paths}


def imports(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Module -> the modules of the project that it imports."""
    return {
        name: {target for target in _targets(path, files) if target != name}
        for name, path in files.items()
    }


def folder_imports(graph: Graph) -> dict[str, set[str]]:
    """Folder -> the folders it imports from."""
    found: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for name, targets in graph.items():
        folder = folder_of(name)
        found[folder] |= {folder_of(target) for target in targets} - {folder}
    return found


def folder_of(module: str) -> str:
    return module.split(".")[0]


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of nodes that import each other in a circle (strongly connected, two or more)."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(sorted(group) for group in groups)


def picture() -> str:
    """One line for each folder: what it imports from."""
    lines = []
    for folder, others in folder_imports(imports(module_files())).items():
        listed = ", ".join(_title(other) for other in FOLDERS if other in others)
        lines.append(f"{_title(folder):<20} imports {listed or 'nothing of the project'}")
    return "\n".join(lines)


def _title(folder: str) -> str:
    return "train.py" if folder == "train" else folder


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _targets(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names = f"{node.module}.{alias.name}", node.module
                yield from [name for name in names if name in files][:1]
        elif isinstance(node, ast.Constant) and node.value in files and "." in str(node.value):
            yield str(node.value)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    pending = list(graph[start])
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += graph.get(name, ())
    return found


if __name__ == "__main__":
    print(picture())
