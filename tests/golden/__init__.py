"""Checkpoints and savepoints of earlier versions, stored permanently: later versions must restore them.

`v1`, `v2`: one directory for each version of the format of manifests. In each, a directory for each case of `cases.py`:

    saved/          the job's directory with one checkpoint in it, or the savepoint
    place/          what the job reads from and writes to, as it was at that moment; only some have it
    expected.json   the expected output of a job restored from it

Files of a version are made once, by the program of that version, and never again. For a new one:

    python -m tests.golden.make
"""
