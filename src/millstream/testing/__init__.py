"""Test tools for users' programs: see docs/guides/testing.md."""

# Imported on first use: pytest loads the plugin of this package for every run, also for unrelated tests.
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.testing.cep_harness import CepHarness
    from millstream.testing.clock import ManualClock
    from millstream.testing.inspection import TimerView
    from millstream.testing.local_job import LocalEnvironment, LocalJob, run_locally
    from millstream.testing.operator_harnesses import (
        BroadcastHarness,
        KeyedBroadcastHarness,
        KeyedOneInputHarness,
        KeyedTwoInputHarness,
        OneInputHarness,
        TwoInputHarness,
        WindowHarness,
    )
    from millstream.testing.savepoints import save_checkpoint, save_savepoint, start_from
    from millstream.testing.sinks import CollectSink, FailingSink
    from millstream.testing.sources import ABORT, KILL, TestingSource, per_element_watermarks
    from millstream.testing.stream_harness import HarnessSettings, HarnessSnapshot, Record, StreamHarness
    from millstream.testing.values_table import ValuesTable

_HOMES = {
    "cep_harness": ["CepHarness"],
    "clock": ["ManualClock"],
    "sinks": ["CollectSink", "FailingSink"],
    "stream_harness": ["HarnessSettings", "HarnessSnapshot", "Record", "StreamHarness"],
    "operator_harnesses": [
        "BroadcastHarness",
        "KeyedBroadcastHarness",
        "KeyedOneInputHarness",
        "KeyedTwoInputHarness",
        "OneInputHarness",
        "TwoInputHarness",
        "WindowHarness",
    ],
    "inspection": ["TimerView"],
    "local_job": ["LocalEnvironment", "LocalJob", "run_locally"],
    "savepoints": ["save_checkpoint", "save_savepoint", "start_from"],
    "sources": ["ABORT", "KILL", "TestingSource", "per_element_watermarks"],
    "values_table": ["ValuesTable"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ABORT",
    "KILL",
    "BroadcastHarness",
    "CepHarness",
    "CollectSink",
    "FailingSink",
    "HarnessSettings",
    "HarnessSnapshot",
    "KeyedBroadcastHarness",
    "KeyedOneInputHarness",
    "KeyedTwoInputHarness",
    "LocalEnvironment",
    "LocalJob",
    "ManualClock",
    "OneInputHarness",
    "Record",
    "StreamHarness",
    "TestingSource",
    "TimerView",
    "TwoInputHarness",
    "ValuesTable",
    "WindowHarness",
    "per_element_watermarks",
    "run_locally",
    "save_checkpoint",
    "save_savepoint",
    "start_from",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
