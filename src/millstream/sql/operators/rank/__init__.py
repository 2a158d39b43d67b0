"""Sorting, Top-N, deduplication and MATCH_RECOGNIZE."""
