"""Formats of tables: how rows lie in files and messages."""
