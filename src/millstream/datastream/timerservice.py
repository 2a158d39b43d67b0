"""TimerService, where PyFlink has it."""

from millstream.operators.runtime.timers import TimerService

__all__ = ["TimerService"]
