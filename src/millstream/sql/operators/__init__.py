"""Operators of SQL, on batches of columns."""
