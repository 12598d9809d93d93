"""Tools that show where two models agree, and how closely."""
