"""Two modules seen call by call: every value, every gradient, where they differ, why."""
