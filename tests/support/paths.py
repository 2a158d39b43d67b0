"""Paths of the repository and its tests."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
BENCH = ROOT / "bench"
DOCS = ROOT / "docs"
