"""Benchmarks of SQL: queries compared with Flink's Java SQL, Nexmark, TPC-H and TPC-DS."""
