"""Print the lowest release of each package that pyproject.toml allows, as pip's constraints.

To try all of them at once, on Python 3.11:

    python .ci/lowest.py > lowest.txt && pip install -e '.[test]' -c lowest.txt && pytest
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
for requirement in [*project["dependencies"], *(r for name in extras for r in extras[name])]:
    if bound := re.match(r"([\w.-]+)>=([\w.]+)", requirement):
        print("==".join(bound.groups()))
