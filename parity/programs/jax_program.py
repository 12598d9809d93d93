"""A JAX model's run as a program of primitive operations, whatever library wrote it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from parity.observe.arrays import dtype_name, to_numpy
from parity.observe.flax_side import fast_compile_options
from parity.programs.program import Kind, Operation, Program, Results, Source, Value
from parity.programs.sources import code_at, is_layer_code, is_users_own

# The parameters that hold the body of a call, which is run in the call's place.
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")


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
    try:
        closed, shape = jax.make_jaxpr(call, return_shape=True)(given, fed)
        narrow = False
    except Exception as error:
        if not _is_dtype_clash(error):
            raise
        # A loop whose carry is float32 whatever it is fed can only be traced in float32.
        traced = jax.tree.map(_narrowed, (given, fed))
        closed, shape = jax.make_jaxpr(call, return_shape=True)(*traced)
        narrow = True
    recorder = _Recorder(narrow)
    # A dictionary is flattened in the order of its keys.
    numbers = [recorder.add(given[name], "parameter", name) for name in sorted(given)]
    numbers += [recorder.add(fed[name], "input", name) for name in sorted(fed)]
    consts = [recorder.add_constant(c) for c in closed.consts]
    returned = recorder.run_body(closed.jaxpr, consts, numbers)
    recorder.compute()
    paths = [name for name, _ in _named_leaves(shape)]
    run = _differentiated(call, (sorted(given), sorted(fed)), numbers, returned)

    def rerun(changed: Mapping[int, np.ndarray], weights: Mapping[int, np.ndarray]) -> Results:
        if narrow:
            return program.rerun_operations(changed, weights)
        moved = {n: jnp.asarray(array) for n, array in changed.items()}
        return run({n: recorder.arrays[n] for n in numbers} | moved, weights)

    program = Program(
        "jax",
        recorder.values,
        recorder.operations,
        recorder.arrays,
        dict(zip(paths, returned, strict=True)),
        lambda array, old: jnp.asarray(array, old.dtype).reshape(old.shape),
        to_numpy,
        rerun,
        _compile,
    )
    return program


def _is_dtype_clash(error: BaseException | None) -> bool:
    """Whether types that do not fit together ended a trace."""
    while error is not None:
        if isinstance(error, TypeError) and "float32" in str(error) and "float64" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _narrowed(array: Any) -> Any:
    return array.astype(jnp.float32) if array.dtype == jnp.float64 else array


def _widened(given: Any) -> Any:
    """float64 in the place of float32: an array, or a dtype among the parameters of an equation."""
    if isinstance(given, jax.Array | np.ndarray):
        return given.astype(jnp.float64) if given.dtype == jnp.float32 else given
    is_narrow = isinstance(given, np.dtype | type) and given == np.float32
    return np.dtype("float64") if is_narrow else given


def _differentiated(
    call: Callable[..., Any],
    names: tuple[Sequence[str], Sequence[str]],
    numbers: Sequence[int],
    outputs: Sequence[int],
) -> Callable[[Mapping[int, Any], Mapping[int, np.ndarray]], Results]:
    """The model as jax runs it, with the gradients of its weighted outputs; compiled once."""

    def weighted(
        moving: Mapping[int, Any], fixed: Mapping[int, Any], weights: Mapping[int, Any]
    ) -> tuple[Any, list[Any]]:
        leaves = [moving[n] if n in moving else fixed[n] for n in numbers]
        first = len(names[0])
        returned = jax.tree.leaves(
            call(
                dict(zip(names[0], leaves[:first], strict=True)),
                dict(zip(names[1], leaves[first:], strict=True)),
            )
        )
        parts = [
            (weights[n].astype(out.dtype) * out).sum()
            for n, out in zip(outputs, returned, strict=True)
            if n in weights
        ]
        return sum(parts, start=jnp.zeros(())), returned

    program = _compile(jax.value_and_grad(weighted, has_aux=True))

    def run(leaves: Mapping[int, Any], weights: Mapping[int, np.ndarray]) -> Results:
        moving = {n: a for n, a in leaves.items() if jnp.issubdtype(a.dtype, jnp.floating)}
        fixed = {n: a for n, a in leaves.items() if n not in moving}
        given = {n: jnp.asarray(w) for n, w in weights.items()}
        (_, returned), gradients = program(moving, fixed, given)
        return (
            {n: to_numpy(out) for n, out in zip(outputs, returned, strict=True)},
            {n: to_numpy(gradient) for n, gradient in gradients.items()},
        )

    return run


def _compile(function: Callable) -> Callable:
    """A program that runs a few times at most; every value is rounded to its own type."""
    options = {**fast_compile_options(), "xla_allow_excess_precision": False}
    return jax.jit(function, compiler_options=options)


def _named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a model's outputs by their path; a lone one is called "output"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [
        (jax.tree_util.keystr(path, simple=True, separator=".") or "output", leaf)
        for path, leaf in leaves
    ]


class _Recorder:
    """Runs jaxprs on numbered values; bodies of calls, loops and branches are run in place.

    Operations are written down first and computed together, in one compiled program; only a branch
    or a loop whose length depends on values needs those values beforehand.

    Args:
        widen: run in float64 what was traced in float32.
    """

    def __init__(self, widen: bool = False) -> None:
        self.widen = widen
        self.values: list[Value] = []
        self.operations: list[Operation] = []
        self.arrays: dict[int, Any] = {}
        self._calls: list[Any] = []
        self._computed = 0

    def compute(self) -> None:
        """Give every value its array that has none yet."""
        operations = self.operations[self._computed :]
        self._computed = len(self.operations)
        if not operations:
            return
        produced = [n for operation in operations for n in operation.outputs]
        inside = set(produced)
        read = {n for o in operations for n in o.inputs if n not in inside}

        def program(arrays: dict[int, Any]) -> dict[int, Any]:
            found = dict(arrays)
            for operation in operations:
                computed = operation.run([found[n] for n in operation.inputs])
                found.update(zip(operation.outputs, computed, strict=True))
            return {n: found[n] for n in produced}

        for number, array in _compile(program)({n: self.arrays[n] for n in read}).items():
            self.arrays[number] = array
            self.values[number].array = _held(array)
            self.values[number].dtype = dtype_name(array)

    def add(self, array: Any, kind: Kind, name: str = "", producer: int | None = None) -> int:
        number = len(self.values)
        self.values.append(Value(number, _held(array), dtype_name(array), kind, name, producer))
        self.arrays[number] = array
        return number

    def add_constant(self, array: Any) -> int:
        array = jnp.asarray(array)
        return self.add(_widened(array) if self.widen else array, "constant")

    def run_body(self, jaxpr: Any, consts: Sequence[int], inputs: Sequence[int]) -> list[int]:
        """Run the equations; numbers of values go in and come out."""
        numbers: dict[Any, int] = {}

        def read(variable: Any) -> int:
            if isinstance(variable, jax_core.Literal):
                held: Any = variable
                return self.add_constant(jnp.asarray(held.val, held.aval.dtype))
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
                    return self._run_scan(equation, inputs)
                case "while":
                    return self._run_while(parameters, inputs)
                case "cond":
                    self.compute()
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
        consts = [self.add_constant(c) for c in body.consts]
        return self.run_body(body.jaxpr, consts, inputs)

    def _run_scan(self, equation: Any, inputs: list[int]) -> list[int]:
        """Unroll the loop: a slice of every stacked input, the body, all slices stacked again."""
        parameters = equation.params
        body = parameters["jaxpr"].jaxpr
        # What is stacked has an axis more outside than in the body, in every version of jax.
        slices_from = len(inputs) - _count_longer(equation.invars, body.invars)
        carried = len(body.outvars) - _count_longer(equation.outvars, body.outvars)
        fixed = slices_from - carried
        consts, carry = inputs[:fixed], inputs[fixed:slices_from]
        stacked = inputs[slices_from:]
        steps = range(parameters["length"])
        collected: dict[int, list[int]] = {}
        for step in reversed(steps) if parameters["reverse"] else steps:
            slices = [self._write_down("slice of scan", _slice(step), (x,), 1, {"index": step})[0]
                      for x in stacked]  # fmt: skip
            found = self._run_closed(parameters["jaxpr"], [*consts, *carry, *slices])
            carry = found[:carried]
            collected[step] = found[carried:]
        columns = zip(*(collected[step] for step in steps), strict=True)
        return [*carry, *(self._write_down("stack of scan", _stack, c, 1)[0] for c in columns)]

    def _run_while(self, parameters: Mapping[str, Any], inputs: list[int]) -> list[int]:
        """Run the loop as often as its condition holds for these inputs."""
        tests, bodies = parameters["cond_nconsts"], parameters["body_nconsts"]
        test_consts, body_consts = inputs[:tests], inputs[tests : tests + bodies]
        carry = inputs[tests + bodies :]
        while True:
            (holds,) = self._run_closed(parameters["cond_jaxpr"], [*test_consts, *carry])
            self.compute()
            if not bool(self.arrays[holds]):
                return carry
            carry = self._run_closed(parameters["body_jaxpr"], [*body_consts, *carry])

    def _run_primitive(self, equation: Any, inputs: list[int]) -> list[int]:
        primitive, parameters = equation.primitive, equation.params
        if self.widen:
            parameters = {name: _widened(value) for name, value in parameters.items()}

        def bind(arrays: Sequence[Any], changed: Mapping[str, Any]) -> list[Any]:
            found = primitive.bind(*arrays, **{**parameters, **changed})
            return list(found) if primitive.multiple_results else [found]

        def make_run(changes: Mapping[str, Any]) -> Callable:
            return lambda arrays: bind(arrays, changes)

        count = len(equation.outvars)
        return self._write_down(primitive.name, make_run, inputs, count, parameters)

    def _write_down(
        self,
        name: str,
        make_run: Callable[[Mapping[str, Any]], Callable],
        inputs: Sequence[int],
        count: int,
        attributes: Mapping[str, Any] | None = None,
    ) -> list[int]:
        number, first = len(self.operations), len(self.values)
        outputs = list(range(first, first + count))
        self.values += [Value(n, np.zeros(0), "", "computed", "", number) for n in outputs]
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


def _held(array: Any) -> np.ndarray:
    extended = jnp.issubdtype(array.dtype, jax.dtypes.extended)
    return np.zeros(0) if extended else to_numpy(array)


def _count_longer(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    pairs = zip(outside, inside, strict=True)
    return sum(len(ours.aval.shape) > len(theirs.aval.shape) for ours, theirs in pairs)


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
