"""Training steps of the two frameworks held against each other: what a user's own loop does.

steps/torch_step, jax_step   what a user hands over, run N times with everything recorded
family, fit                  optimizers as members of one family, and the member that a record shows
optimizers                   the smallest difference of two members, in the field's words
schedules, averages, losses  formulas of rates, averaged weights and losses, and their differences
initialization               distributions of fresh parameters
"""
