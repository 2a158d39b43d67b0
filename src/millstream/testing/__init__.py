"""What users test their programs with: see docs/testing.md."""

# Imported when first asked for: pytest loads the plugin in this package for every run, also for tests of other things.
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.testing.cep_harness import CepHarness
    from millstream.testing.clock import ManualClock
    from millstream.testing.collect_sink import CollectSink
    from millstream.testing.failing_sink import FailingSink
    from millstream.testing.inspection import TimerView
    from millstream.testing.local_environment import LocalEnvironment
    from millstream.testing.local_job import LocalJob, run_locally
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
    from millstream.testing.stream_harness import HarnessSettings, HarnessSnapshot, Record, StreamHarness
    from millstream.testing.testing_source import ABORT, KILL, TestingSource
    from millstream.testing.values_table import ValuesTable
    from millstream.testing.watermarks import per_element_watermarks

_HOMES = {
    "cep_harness": ["CepHarness"],
    "clock": ["ManualClock"],
    "collect_sink": ["CollectSink"],
    "failing_sink": ["FailingSink"],
    "harness": ["HarnessSettings", "HarnessSnapshot", "Record", "StreamHarness"],
    "harnesses": [
        "BroadcastHarness",
        "KeyedBroadcastHarness",
        "KeyedOneInputHarness",
        "KeyedTwoInputHarness",
        "OneInputHarness",
        "TwoInputHarness",
        "WindowHarness",
    ],
    "inspection": ["TimerView"],
    "local_job": ["LocalJob", "run_locally"],
    "local_environment": ["LocalEnvironment"],
    "savepoints": ["save_checkpoint", "save_savepoint", "start_from"],
    "testing_source": ["ABORT", "KILL", "TestingSource"],
    "values_table": ["ValuesTable"],
    "watermarks": ["per_element_watermarks"],
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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
