"""What PyFlink has in its package `util` that programs import."""
