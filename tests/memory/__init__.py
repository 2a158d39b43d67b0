"""Recorded memory budgets of Flink."""
