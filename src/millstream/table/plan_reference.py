"""PlanReference: where a plan is."""

from __future__ import annotations

from millstream.common.missing import missing_class
from millstream.table.table_pipeline import PLANS

__all__ = ["BytesContentPlanReference", "FilePlanReference", "JsonContentPlanReference", "PlanReference"]

PlanReference = missing_class(__name__, "PlanReference", PLANS)
FilePlanReference = missing_class(__name__, "FilePlanReference", PLANS)
JsonContentPlanReference = missing_class(__name__, "JsonContentPlanReference", PLANS)
BytesContentPlanReference = missing_class(__name__, "BytesContentPlanReference", PLANS)
