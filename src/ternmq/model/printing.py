"""Text that others chose, for a terminal: nothing in it moves a cursor or hides what follows."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text as one line, with whatever is not printable escaped.

    That is control characters (line breaks, ESC, those of C1), marks that turn the direction of
    what follows, separators other than the space, and halves of surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode()
        for sign in text
    )


def printable_lines(text: str) -> str:
    """Return the same of a text of several lines; its line breaks stay."""
    return "\n".join(printable(line) for line in text.split("\n"))
