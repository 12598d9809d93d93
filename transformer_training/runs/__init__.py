"""A training run beside its backend: its directory, its figures, how it ends and resumes."""
