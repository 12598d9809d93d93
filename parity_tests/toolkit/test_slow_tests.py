"""The list of tests that are slow for their time alone names tests that exist."""

import ast

from parity_tests.conftest import SLOW_TESTS, slow_tests


def test_every_name_is_that_of_a_test():
    defined = {}
    for name in slow_tests():
        file, *_, function = name.partition("[")[0].split("::")
        if file not in defined:
            tree = ast.parse((SLOW_TESTS.parent / file).read_text(encoding="utf-8"))
            defined[file] = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert function in defined[file], name
