"""Catalogs of tables, views, functions and models."""
