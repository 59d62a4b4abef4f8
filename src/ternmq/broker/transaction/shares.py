"""Fair shares of what all apps have together: the last tenth is for those that have little."""

from __future__ import annotations

from collections import Counter


def refuses(cap: int, counts: Counter[str], total: int, app: str, more: int = 1) -> bool:
    """Return whether an app may not have so many more of something.

    Up to nine tenths of the cap, everybody may take. The rest is for apps that have less than the
    cap divided by the number of the apps that have some, and one more. So an app that takes all
    it can does not keep the others from beginning.

    Args:
        cap: Most that all apps may have together.
        counts: App -> how many it has.
        total: How many all have.
        app: Who wants more.
        more: How many more, one after the other; none of them is granted if one is refused.
    """
    before_last = total + more - 1  # if any is refused, the last one is
    if before_last >= cap:
        return True
    if before_last < cap - cap // 10:
        return False
    apps = len(counts) + (more > 1 and app not in counts)
    return counts[app] + more - 1 >= cap // (apps + 1)
