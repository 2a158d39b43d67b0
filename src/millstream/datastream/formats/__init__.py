"""Formats of files and messages: CSV, JSON, Parquet."""
