"""Group aggregates and their accumulators."""
