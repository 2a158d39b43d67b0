"""Window table functions, window aggregates, window joins and window ranks."""
