"""PyFlink's import path of TimerService."""

from millstream.operators.runtime.timers import TimerService

__all__ = ["TimerService"]
