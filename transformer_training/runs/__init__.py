"""What a training run is beside its backend: its directory, its figures, its end and its return."""
