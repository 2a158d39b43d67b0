"""Benchmarks of patterns beside Flink CEP."""
