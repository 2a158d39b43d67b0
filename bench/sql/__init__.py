"""Benchmarks of SQL: queries beside Flink's Java SQL, Nexmark, TPC-H and TPC-DS."""
