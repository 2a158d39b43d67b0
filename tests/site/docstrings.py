"""An extension of Griffe, which reads the docstrings of the API reference."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Reads a section `Example:` as `Examples:`, the only name for programs with prompts that Griffe knows."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rename the section before the docstring is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
