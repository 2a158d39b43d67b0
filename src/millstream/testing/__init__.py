"""Helpers for testing programs."""

from millstream.testing.collect_sink import CollectSink
from millstream.testing.local import LocalJob, ManualClock, run_locally
