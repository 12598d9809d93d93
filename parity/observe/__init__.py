"""Observe one run of a model in either framework: every value and gradient, by name.

A side is a module with its parameters and inputs: `flax_side.FlaxSide` or `torch_side.TorchSide`
(`FlaxFunction` and `TorchFunction` make modules of functions). Both have

    parameters()               every parameter under torch's names, laid out as torch has them
    record()                   a run of the model as it is
    record_with(substitutes)   a run whose values are replaced, point by point, by others

and the same arguments: `gradients` (take them or not), `method` (which of the module's methods is
called), `watched` (which points are recorded; `points.ENDS` is the model's own inputs and outputs),
`probe` (how outputs are weighted before gradients are taken); Flax also `compiler` (jit or eager).

What comes back is a `points.Recording`:

    observed[name, kind]       arrays, dtypes and gradients at the inputs and the output of every
                               module call and at every tap; ("", "output") is the model's own
    outputs                    the arrays that the model returned
    input_gradients            by argument name, of the floating-point ones
    parameter_gradients        by parameter name
    failure                    what ended the run early; `require_finished()` raises it

    points      the names of points, recordings, and the walk that visits them
    arrays      arrays of either framework as NumPy holds them, and back
    names       the mapping rule: Linen's parameter names to torch's
    weights     parameters from one framework to the other
    settings    what must hold before numbers can be compared
"""
