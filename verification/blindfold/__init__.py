"""Our twins in disguise, through the command that users type: no names, no taps, other layouts."""
