"""Checks what `millstream demo` has written, for tests with both engines."""

from __future__ import annotations

import re


def check_demo_output(text: str) -> None:
    """Check that the tour shows results, a recovery, a savepoint, an upgrade and complete results."""
    steps = [
        r"== 1 of 5: results\n",
        r"The first results came after [0-9.]+ s\.\n",
        r"The page of the job: http://127\.0\.0\.1:[0-9]+/#/jobs/[0-9a-f]{32}\n",
        r"\norders, EUR +Ghent +Porto +Graz +Turku\n",
        r"== 2 of 5: recovery\n",
        r"The job has failed: \S.*\n",
        r"It was restored from checkpoint [1-9][0-9]* and works again after [0-9.]+ s\.\n",
        r"== 3 of 5: savepoint\n",
        r"The job was stopped with savepoint /\S+/savepoint-\S+\n",
        r"== 4 of 5: upgrade\n",
        r"\+   SELECT window_end, product, .*\n",
        r"The new version continues the windows of the old one\.\n",
        r"The page of its job: http://127\.0\.0\.1:[0-9]+/#/jobs/[0-9a-f]{32}\n",
        r"\norders, largest +bread +cheese +olives +wine\n",
        r"== 5 of 5: check\n",
    ]
    position = 0
    for step in steps:
        match = re.compile(step).search(text, position)
        assert match is not None, f"{step} does not follow in {text[position:]}"
        # Headers share their line break with the line before.
        position = match.end() - 1
    # Windows appear once each, in order.
    ends = re.findall(r"^until ([0-9:]{8})", text.partition("orders, largest")[0], re.MULTILINE)
    assert len(ends) >= 5
    assert ends == sorted(set(ends))
    counts = re.search(
        r"The generator produced ([0-9,]+) orders: ([0-9,]+) are in windows and ([0-9,]+) were late", text
    )
    assert counts is not None, text
    generated, in_windows, late = (int(number.replace(",", "")) for number in counts.groups())
    assert generated == in_windows + late
    assert late > 0
