"""Formats of files and messages: Avro, CSV, JSON, ORC, Parquet."""
