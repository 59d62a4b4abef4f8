from __future__ import annotations

import pytest

from ternmq.model.errors import InvalidName
from ternmq.model.printing import quoted
from ternmq.model.specs import check_name


def test_a_long_text_is_cut_and_says_so() -> None:
    assert quoted("orders") == "'orders'"
    assert quoted("a\x1b") == r"'a\x1b'"
    assert quoted("b" * 128) == f"'{'b' * 40}'... (128 characters)"


def test_a_name_that_is_too_long_is_not_shown_as_a_good_one() -> None:
    with pytest.raises(InvalidName, match=r"not a name: 'a{40}'\.\.\. \(128 characters\)"):
        check_name("a" * 128)
