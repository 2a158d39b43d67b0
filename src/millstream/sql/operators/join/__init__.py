"""Joins, correlates and set operations."""
