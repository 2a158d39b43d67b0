"""CompiledPlan: a plan in a file."""

from __future__ import annotations

from millstream.common.missing import missing_class
from millstream.table.table_pipeline import PLANS

__all__ = ["CompiledPlan"]

CompiledPlan = missing_class(__name__, "CompiledPlan", PLANS)
