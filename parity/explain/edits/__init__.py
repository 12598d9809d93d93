"""The smallest edit of one program's operations that makes what follows agree with another's.

edit          Edit; operations that compute something else in the place of a program's own
find          find_edit: kinds of edits tried in turn, one accepted where everything after it agrees
search        the operations on both sides of a difference, and what an edit must reproduce
attributes    another axis, flag, diagonal, size, dtype; another number, solved for
operands      an operation bypassed, operands exchanged, a value read in the place of another
functions     a function in the place of its relative; what only the target applies
arrangements  permutations of factored axes, shifts, reversals
insertions    a layer that the target alone applies
masks         which keys each query may attend to
indices       whole numbers that choose rows: positions, buckets, slots
rotations     rotations by the angles of other positions
tables        cosines and sines of angles, and other tables that no input enters
convolutions  padding of images, kernels flipped in space
backward      find_gradient_edit: equal values whose gradients differ
words         operations, numbers and axes in the field's words
"""
