"""PyFlink's names, programs and tests."""
