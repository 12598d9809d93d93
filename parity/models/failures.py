"""What a user's code raises, as one line that says where."""

import os
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

from parity.observe.points import first_line
from parity.observe.settings import NotComparableError

TORCH_RUNS = "the torch side does not run"
JAX_RUNS = "the JAX side does not run"
_HERE = str(Path(__file__).parent) + os.sep
_TOOL = str(Path(__file__).parent.parent) + os.sep
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn what the code inside raises into a NotComparableError: `what` names its owner.

    An exception that arises elsewhere in the tool is its own fault and is passed on as it is.

    Raises:
        NotComparableError: "`what`: TypeError: ... (mine.py:12)".
    """
    try:
        yield
    except NotComparableError:
        raise
    except Exception as error:
        frames = extract_tb(error.__traceback__)
        # A call with the wrong arguments fails in this folder, where the user's code is called.
        last = frames[-1].filename
        if last.startswith(_TOOL) and not last.startswith(_HERE):
            raise
        users = [f for f in frames if not f.filename.startswith((_TOOL, *_LIBRARIES, "<"))]
        place = f" ({Path(users[-1].filename).name}:{users[-1].lineno})" if users else ""
        raise NotComparableError(f"{what}: {first_line(error)}{place}") from error
