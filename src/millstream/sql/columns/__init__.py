"""Rows as columns: batches, the Arrow type of each SQL type, and values between Python and columns."""
