"""TimeDomain, where PyFlink has it."""

from millstream.operators.timers import TimeDomain

__all__ = ["TimeDomain"]
