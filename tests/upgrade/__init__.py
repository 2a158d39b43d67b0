"""Upgrades a job from an older version of the package to this one, by savepoint and by checkpoint, without data loss.

make test-upgrade
"""
