"""OVER aggregates."""
