"""docs/reference/settings.md is what the settings say. ``make docs`` writes it anew."""

from __future__ import annotations

from pathlib import Path

from ternmq.model.units import TRUTHS
from ternmq.settings import reference
from ternmq.settings.fields import ALL_FIELDS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_the_page_names_every_setting_once() -> None:
    for key in ALL_FIELDS:
        assert reference().count(f"| `{key}` |") == 1


def test_the_page_names_every_word_that_a_truth_may_be() -> None:
    for word, truth in TRUTHS.items():
        assert f"`{word}`" in reference()
        assert ALL_FIELDS["create_topics"].read(word) is truth


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(reference(), encoding="utf-8")
