"""Transformations -> stream graph -> job graph with chains -> levels and slots."""
