"""Benchmarks of patterns, compared with Flink CEP."""
