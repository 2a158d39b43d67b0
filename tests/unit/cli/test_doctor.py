"""The cluster doctor's findings on the properties of machines."""

from __future__ import annotations

from dataclasses import replace

from millstream.cli.doctor import problems_of
from millstream.spark.cluster_probe import Machine

DRIVER = Machine("driver", "3.11.7", {"pyspark": "4.3.0", "cloudpickle": "3.1", "numpy": "2.4"}, "1.0", 2**30, 2**30)


def test_doctor_accepts_a_machine_like_the_driver() -> None:
    # A patch of Python, and a package that not every job uses, make no difference.
    like = replace(DRIVER, name="a", python="3.11.2", packages={**DRIVER.packages, "numpy": None}, clock_ahead=-0.4)
    assert problems_of(DRIVER, like, "/there") == []


def test_doctor_reports_each_difference_as_a_sentence() -> None:
    other = replace(
        DRIVER,
        name="a",
        python="3.12.1",
        packages={"pyspark": "4.2.0", "cloudpickle": None, "numpy": "2.4"},
        millstream="0.9",
        clock_ahead=-7.25,
        unreachable=["b", "c"],
        storage_problem="FileNotFoundError",
    )
    assert problems_of(DRIVER, other, "s3://there") == [
        "a has Python 3.12.1 and the driver 3.11.7: set spark.pyspark.python to the same version.",
        "a has pyspark 4.2.0 and the driver 4.3.0: install the same version.",
        "a has no cloudpickle: install it there, or ship it with -pyreq.",
        "a has millstream 0.9 and the driver 1.0: remove it there.",
        "a has a clock -7.2 s from the driver's: synchronise the clocks.",
        "a cannot reach b, c: open the ports between them, or set millstream.exchange: spark.",
        "a cannot use s3://there (FileNotFoundError): configure a shared directory.",
    ]
    silent = replace(DRIVER, name="a", clock_ahead=None)
    assert problems_of(DRIVER, silent, "")[0].startswith("a cannot reach the driver")
