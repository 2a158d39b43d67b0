"""Operators on columns, which run inside subtasks."""
