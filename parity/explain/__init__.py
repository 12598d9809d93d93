"""Explain a difference: locate the faults, examine a pair whole, solve for the causes."""
