"""PyFlink's own tests, run on Millstream."""
