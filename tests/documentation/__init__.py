"""Generators of documentation: diagrams, reference pages and screenshots."""
