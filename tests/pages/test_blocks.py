"""Blocks are found and compared as the module says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.blocks import Step, agrees, steps

PAGE = """\
# A page

```python
print("a")
```

```output
a
```

```console
$ echo one &&
> echo two
one
two
$ true
```
"""


def test_steps(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    assert steps(page) == [
        Step(3, "python", 'print("a")\n', "a\n"),
        Step(12, "console", "echo one &&\necho two", "one\ntwo\n"),
        Step(16, "console", "true", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "b\n", False),
        ("a\n", "a\nb\n", False),
        ("took ... s\n", "took 0.3 s\n", True),
        ("took ... s\n", "took 0.3\n s\n", False),
        ("a\n...\nz\n", "a\nb\nc\nz\n", True),
        ("a\n...\nz\n", "a\nz\n", True),
        ("a.b\n", "axb\n", False),
    ],
)
def test_agrees(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown, printed) is same
