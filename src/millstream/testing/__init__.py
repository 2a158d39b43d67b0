"""Helpers for testing programs."""

from millstream.testing.collect_sink import CollectSink
from millstream.testing.local import LocalJob, ManualClock, run_locally
from millstream.testing.saved import save_checkpoint, save_savepoint, start_from
from millstream.testing.watermarks import per_element_watermarks
