"""Where jobs run: on Spark, or in the process of the program. Known without importing what runs them."""

from __future__ import annotations

import os
from enum import Enum

from millstream.common.configuration import Configuration
from millstream.common.setting import ChoiceSetting


class EngineChoice(Enum):
    """Where jobs run: on Spark, or in the process of the program."""

    SPARK = 0
    LOCAL = 1


ENGINE = ChoiceSetting("millstream.engine", EngineChoice.SPARK)


def runs_here(config: Configuration) -> bool:
    """Tell whether jobs with these settings run in this process."""
    return ENGINE.read(config) is EngineChoice.LOCAL


def cores_here() -> int:
    """Return how many subtasks an operator has here that is given no number: as on Spark on this machine."""
    return len(os.sched_getaffinity(0))
