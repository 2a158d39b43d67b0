"""Operators, and the runtime of their subtasks: pure Python, no Spark, no clock, no I/O."""
