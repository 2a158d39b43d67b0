"""Catalogs: what tables, views and functions there are."""
