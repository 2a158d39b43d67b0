"""Run the tests of one package of PyFlink on Millstream in this process, and write the outcome of each as JSON.

    one_package.py CHECKOUT OUTPUT package ... [--only part-of-an-id]

CHECKOUT is the folder `pyflink` of Flink's sources, a package is `table/tests`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import re
import signal
import sys
import traceback
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import names

# The timeout of a test.
SECONDS = 120


class _Timeout(BaseException):
    """A test exceeded its timeout."""


class _Outcomes(unittest.TestResult):
    """The outcome of each test: `passed`, `skipped`, or the traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        # Jobs run in this process: remove modules that an earlier test added.
        for name, module in list(sys.modules.items()):
            if re.search(r"/millstream-[^/]*/files/", getattr(module, "__file__", None) or ""):
                del sys.modules[name]
        signal.alarm(SECONDS)

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes.setdefault(_id(test), "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcomes[_id(test)] = f"skipped: {reason}"

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self.outcomes[_id(test)] = "".join(traceback.format_exception(*err))

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    addFailure = addError


def _id(test: unittest.TestCase) -> str:
    return test.id().removeprefix("pyflink.")


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for entry in suite:
        yield from _tests(entry) if isinstance(entry, unittest.TestSuite) else [entry]


def _module_suite(name: str, only: str, outcomes: _Outcomes) -> unittest.TestSuite:
    try:
        module = importlib.import_module(name)
    except Exception:
        outcomes.outcomes[name.removeprefix("pyflink.")] = traceback.format_exc()
        return unittest.TestSuite()
    # Modules also import base classes, whose tests belong to other modules.
    tests = _tests(unittest.defaultTestLoader.loadTestsFromModule(module))
    return unittest.TestSuite(t for t in tests if type(t).__module__ == name and only in t.id())


def _on_alarm(*_: object) -> None:
    raise _Timeout(f"took longer than {SECONDS} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    names.install(options.checkout)
    from millstream.datastream.launch_context import set_command_line

    set_command_line({"millstream.engine": "local"})
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    signal.signal(signal.SIGALRM, _on_alarm)
    outcomes = _Outcomes()
    for package in options.packages:
        for file in sorted((options.checkout / package).glob("test_*.py")):
            name = ".".join(["pyflink", *Path(package).parts, file.stem])
            if file.stem != "test_util":
                _module_suite(name, options.only, outcomes).run(outcomes)
    options.output.write_text(json.dumps(outcomes.outcomes, indent=1))


if __name__ == "__main__":
    main()
