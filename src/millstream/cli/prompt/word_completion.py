"""What has been typed: what a word can become. Pure."""

from __future__ import annotations

from millstream.gateway.completion import Vocabulary, candidates, word_at


def completions(before: str, line: str, position: int, words: Vocabulary) -> list[str]:
    """Return what can stand in place of the last word of a line.

    Args:
        before: the lines of the statement above this one.
        line: the line.
        position: where in it.
        words: the names there are.

    Example:
        >>> completions("", "show ta", 7, Vocabulary())
        ['TABLES']
    """
    text = f"{before}\n{line[:position]}" if before else line[:position]
    word = word_at(text, len(text))
    begun = text.rpartition(";")[2].lstrip()
    found = candidates(text + line[position:], len(text), words)
    shown = " ".join(begun.upper().split())
    # Of what a statement can begin with, the part that is not written yet.
    return [c[len(begun) - len(word) :] if " " in begun and c.startswith(shown) else c for c in found]
