"""The functions of SQL: one table of them, and their kernels on columns."""
