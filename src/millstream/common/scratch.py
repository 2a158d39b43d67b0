"""Where this process may put what nobody needs when it has ended."""

from __future__ import annotations

import os

# A session cluster gives each of its programs such a place, and clears it when the program's process is gone, however
# that has ended.
SCRATCH_VARIABLE = "MILLSTREAM_SCRATCH"


def scratch() -> str | None:
    """Return the directory for that; None for the machine's own for such things."""
    given = os.environ.get(SCRATCH_VARIABLE)
    return given if given and os.path.isdir(given) else None
