"""Checkpoints and savepoints of earlier versions, stored permanently: later versions must restore them.

`v1`, `v2`, ..: one directory for each version of the manifest format. In each, a directory for each case of `cases.py`:

    saved/          the job's directory with one checkpoint, or the savepoint
    place/          the job's input and output directories at that moment; only some cases have them
    expected.json   the expected output of a job restored from it

The program of a version creates its files once, and they never change. For a new version:

    python -m tests.golden.make
"""
