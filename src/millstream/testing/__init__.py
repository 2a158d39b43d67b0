"""Helpers for testing programs."""

from millstream.testing.collect_sink import CollectSink
