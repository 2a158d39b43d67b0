"""ModelDescriptor: a model for ML_PREDICT."""

from __future__ import annotations

from millstream.common.missing import missing_class

__all__ = ["ModelDescriptor"]

ModelDescriptor = missing_class(__name__, "ModelDescriptor", "models are not there yet")
