"""A model's run as a program of primitive operations, whatever library wrote it.

program         Program, Operation, Value: recorded once, replayed with values replaced, and
                differentiated operation by operation
torch_program   ATen operations, recorded under a dispatch mode
jax_program     the operations of a jaxpr, with loops, branches and calls opened
sources         the line of the user's code that asked for an operation
"""
