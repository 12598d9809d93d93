"""Two programs side by side: which values are the same, and where they part.

layouts     the axes along which one array is another, transposed and reshaped
contents    values found by what they hold, whatever they are called
rounding    how far a value moves when the numbers it is made of move by their last place
verdict     outputs and gradients: equal or not
locate      the earliest pair of values whose exchange makes everything after it agree
"""
