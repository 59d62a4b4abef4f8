"""Escapes text from other parties for a terminal: it cannot move the cursor or hide other text."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text as one line, with all characters escaped that are not printable.

    These are control characters (line breaks, ESC, those of C1), marks that change the direction
    of text, separators other than the space, and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode()
        for sign in text
    )


def printable_lines(text: str) -> str:
    """Return ``printable`` of each line of a text; its line breaks stay."""
    return "\n".join(printable(line) for line in text.split("\n"))


def quoted(text: str, most: int = 40) -> str:
    """Return a text in quotes, escaped; of a long one the beginning, and how long it is."""
    if len(text) <= most:
        return repr(text)
    return f"{text[:most]!r}... ({len(text)} characters)"
