"""Fair shares of what all apps have together: the last tenth is for those that have little."""

from __future__ import annotations

from collections import Counter


def refuses(cap: int, counts: Counter[str], total: int, app: str) -> bool:
    """Return whether an app may have no more of something.

    Up to nine tenths of the cap, everybody may take. The rest is for apps that have less than the
    cap divided by the number of the apps that have some, and one more. So an app that takes all
    it can does not keep the others from beginning.

    Args:
        cap: Most that all apps may have together.
        counts: App -> how many it has.
        total: How many all have.
        app: Who wants one more.
    """
    if total >= cap:
        return True
    return total >= cap - cap // 10 and counts[app] >= cap // (len(counts) + 1)
