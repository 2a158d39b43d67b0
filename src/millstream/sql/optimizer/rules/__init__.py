"""Optimizer rules: each replaces nodes by equivalent ones."""
