"""A JAX model's run as a program of primitive operations, whatever library wrote it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from parity.observe.arrays import dtype_name, to_numpy
from parity.programs.program import Kind, Operation, Program, Source, Value
from parity.programs.sources import code_at, is_layer_code, is_users_own

# Calls whose body is run in their place: parameter that holds the body, by name of the primitive.
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_RANDOM = ("random_bits", "random_seed", "random_wrap", "random_unwrap", "random_fold_in")


def record_jax(
    call: Callable[..., Any], arrays: Mapping[str, Any], inputs: Mapping[str, Any]
) -> Program:
    """Trace `call(arrays, inputs)` once, run it operation by operation and write down each.

    Args:
        call: what is run; it reads the arrays it is given by these dictionaries.
        arrays: parameters and state by name.
        inputs: what the model is called with, by name.
    """
    given = {name: jnp.asarray(a) for name, a in arrays.items()}
    fed = {name: jnp.asarray(a) for name, a in inputs.items()}
    closed, shape = jax.make_jaxpr(call, return_shape=True)(given, fed)
    recorder = _Recorder()
    # A dictionary is flattened in the order of its keys.
    numbers = [recorder.add(given[name], "parameter", name) for name in sorted(given)]
    numbers += [recorder.add(fed[name], "input", name) for name in sorted(fed)]
    consts = [recorder.add(jnp.asarray(c), "constant") for c in closed.consts]
    returned = recorder.run_body(closed.jaxpr, consts, numbers)
    paths = [name for name, _ in _named_leaves(shape)]
    return Program(
        "jax",
        recorder.values,
        recorder.operations,
        recorder.arrays,
        dict(zip(paths, returned, strict=True)),
        lambda array, old: jnp.asarray(array, old.dtype).reshape(old.shape),
        to_numpy,
    )


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a model's outputs by their path; a lone one is called "output"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [
        (jax.tree_util.keystr(path, simple=True, separator=".") or "output", leaf)
        for path, leaf in leaves
    ]


class _Recorder:
    """Runs jaxprs on numbered values; bodies of calls, loops and branches are run in place."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.operations: list[Operation] = []
        self.arrays: dict[int, Any] = {}
        self._calls: list[Any] = []

    def add(self, array: Any, kind: Kind, name: str = "", producer: int | None = None) -> int:
        number = len(self.values)
        held = np.zeros(0) if jnp.issubdtype(array.dtype, jax.dtypes.extended) else to_numpy(array)
        self.values.append(Value(number, held, dtype_name(array), kind, name, producer))
        self.arrays[number] = array
        return number

    def run_body(self, jaxpr: Any, consts: Sequence[int], inputs: Sequence[int]) -> list[int]:
        """Run the equations; numbers of values go in and come out."""
        numbers: dict[Any, int] = {}

        def read(variable: Any) -> int:
            if isinstance(variable, jax_core.Literal):
                return self.add(jnp.asarray(variable.val, variable.aval.dtype), "constant")
            return numbers[variable]

        numbers.update(zip(jaxpr.constvars, consts, strict=True))
        numbers.update(zip(jaxpr.invars, inputs, strict=True))
        for equation in jaxpr.eqns:
            outputs = self._run_equation(equation, [read(v) for v in equation.invars])
            numbers.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _run_equation(self, equation: Any, inputs: list[int]) -> list[int]:
        name, parameters = equation.primitive.name, equation.params
        self._calls.append(equation.source_info)
        try:
            match name:
                case "scan":
                    return self._run_scan(parameters, inputs)
                case "while":
                    return self._run_while(parameters, inputs)
                case "cond":
                    index, *operands = inputs
                    chosen = parameters["branches"][int(self.arrays[index])]
                    return self._run_closed(chosen, operands)
            body = next((parameters[key] for key in _BODIES if key in parameters), None)
            if body is not None and name not in ("reduce", "custom_root", "custom_linear_solve"):
                return self._run_closed(body, inputs)
            return self._run_primitive(equation, inputs)
        finally:
            self._calls.pop()

    def _run_closed(self, body: Any, inputs: Sequence[int]) -> list[int]:
        if not hasattr(body, "jaxpr"):
            return self.run_body(body, [], inputs)
        consts = [self.add(jnp.asarray(c), "constant") for c in body.consts]
        return self.run_body(body.jaxpr, consts, inputs)

    def _run_scan(self, parameters: Mapping[str, Any], inputs: list[int]) -> list[int]:
        """Unroll the loop: a slice of every stacked input, the body, all slices stacked again."""
        fixed, carried = parameters["num_consts"], parameters["num_carry"]
        consts, carry = inputs[:fixed], inputs[fixed : fixed + carried]
        stacked = inputs[fixed + carried :]
        steps = range(parameters["length"])
        collected: dict[int, list[int]] = {}
        for step in reversed(steps) if parameters["reverse"] else steps:
            slices = [self._write_down("slice of scan", _slice(step), (x,), {"index": step})[0]
                      for x in stacked]  # fmt: skip
            found = self._run_closed(parameters["jaxpr"], [*consts, *carry, *slices])
            carry = found[:carried]
            collected[step] = found[carried:]
        columns = zip(*(collected[step] for step in steps), strict=True)
        return [*carry, *(self._write_down("stack of scan", _stack, c)[0] for c in columns)]

    def _run_while(self, parameters: Mapping[str, Any], inputs: list[int]) -> list[int]:
        """Run the loop as often as its condition holds for these inputs."""
        tests, bodies = parameters["cond_nconsts"], parameters["body_nconsts"]
        test_consts, body_consts = inputs[:tests], inputs[tests : tests + bodies]
        carry = inputs[tests + bodies :]
        while True:
            (holds,) = self._run_closed(parameters["cond_jaxpr"], [*test_consts, *carry])
            if not bool(self.arrays[holds]):
                return carry
            carry = self._run_closed(parameters["body_jaxpr"], [*body_consts, *carry])

    def _run_primitive(self, equation: Any, inputs: list[int]) -> list[int]:
        primitive, parameters = equation.primitive, equation.params

        def bind(arrays: Sequence[Any], changed: Mapping[str, Any]) -> list[Any]:
            found = primitive.bind(*arrays, **{**parameters, **changed})
            return list(found) if primitive.multiple_results else [found]

        def make_run(changes: Mapping[str, Any]) -> Callable:
            return lambda arrays: bind(arrays, changes)

        if primitive.name in _RANDOM:
            drawn = bind([self.arrays[n] for n in inputs], {})
            make_run = lambda changes: lambda arrays: drawn  # noqa: E731
        return self._write_down(primitive.name, make_run, inputs, parameters)

    def _write_down(
        self,
        name: str,
        make_run: Callable[[Mapping[str, Any]], Callable],
        inputs: Sequence[int],
        attributes: Mapping[str, Any] | None = None,
    ) -> list[int]:
        number = len(self.operations)
        computed = make_run({})([self.arrays[n] for n in inputs])
        outputs = [self.add(array, "computed", "", number) for array in computed]
        self.operations.append(
            Operation(
                number,
                name,
                tuple(inputs),
                tuple(outputs),
                _source(self._calls),
                make_run,
                _pullback,
                attributes or {},
            )
        )
        return outputs


def _slice(step: int) -> Callable[[Mapping[str, Any]], Callable]:
    return lambda changes: lambda arrays: [arrays[0][changes.get("index", step)]]


def _stack(changes: Mapping[str, Any]) -> Callable:
    return lambda arrays: [jnp.stack(arrays)]


def _pullback(run: Callable) -> Callable:
    def pull_back(inputs: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        moving = [i for i, a in enumerate(inputs) if jnp.issubdtype(a.dtype, jnp.floating)]
        if not moving:
            return [None] * len(inputs)

        def of_moving(*arrays: Any) -> list[Any]:
            filled = list(inputs)
            for i, array in zip(moving, arrays, strict=True):
                filled[i] = array
            return list(run(filled))

        outputs, pull = jax.vjp(of_moving, *(inputs[i] for i in moving))
        pairs = zip(outputs, gradients, strict=True)
        found = dict(zip(moving, pull([_cotangent(o, g) for o, g in pairs]), strict=True))
        return [found.get(i) for i in range(len(inputs))]

    return pull_back


def _cotangent(output: Any, gradient: Any) -> Any:
    if not jnp.issubdtype(output.dtype, jnp.floating):
        return np.zeros(output.shape, jax.dtypes.float0)
    return jnp.zeros_like(output) if gradient is None else gradient.astype(output.dtype)


def _source(calls: Sequence[Any]) -> Source:
    """The innermost line of the user's own among the calls that led here."""
    module = "/".join(filter(None, (str(call.name_stack) for call in calls)))
    layer = None
    for call in reversed(calls):
        for frame in call.traceback.frames if call.traceback else ():
            if is_users_own(frame.file_name):
                return _at(frame, module)
            if layer is None and is_layer_code(frame.file_name):
                layer = frame
    return Source("", 0, "", "", module) if layer is None else _at(layer, module)


def _at(frame: Any, module: str) -> Source:
    code = code_at(frame.file_name, frame.line_num)
    return Source(frame.file_name, frame.line_num, code, frame.function_name, module)
