"""Recorded answers of Flink CEP."""
