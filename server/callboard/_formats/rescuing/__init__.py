"""Finds calls at the end of a text that was not asked to contain calls."""
