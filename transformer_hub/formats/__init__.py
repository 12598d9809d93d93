"""The files of a checkpoint, format by format: tensors by name, and nothing a file holds is run."""
