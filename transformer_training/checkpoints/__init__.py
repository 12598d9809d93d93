"""Named arrays on disk, and a run's whole state, for either backend. No pickle anywhere.

    RUN/checkpoints/step-00000400/
        checkpoint.json             what it is, and the SHA-256 of every file, itself included
        params.safetensors          parameters under their torch-style names
        first_moment.safetensors    Adam's, under the same names
        second_moment.safetensors
        history.safetensors         loss and accuracy of every update so far

A directory gets its name once everything in it is on the disk: under that name it is complete,
unless something changed it since, which its hashes show.
"""

from transformer_training.checkpoints.arrays import load_arrays, save_arrays

__all__ = ["load_arrays", "save_arrays"]
