"""A job moved from an older version of the package to this one, by savepoint and by checkpoint: nothing is lost.

make test-upgrade
"""
