"""TimerService, where PyFlink has it."""

from millstream.operators.timers import TimerService

__all__ = ["TimerService"]
