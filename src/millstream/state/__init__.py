"""Keyed state: key groups, the overlay of an epoch, and the changelog that is the truth."""
