"""Batches of columns, Arrow types of SQL types, columnar state, and conversion to and from Python values."""
