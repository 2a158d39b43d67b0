"""Runs user-defined functions in subtasks: scalar, table, asynchronous and aggregate calls."""
