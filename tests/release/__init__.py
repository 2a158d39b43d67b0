"""Builds and checks the files of a release: make dist, make release-check."""
