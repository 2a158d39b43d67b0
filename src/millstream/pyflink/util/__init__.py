"""The modules of PyFlink's package `util` that programs import."""
