"""The check of links in the documents finds what is broken and nothing else."""

from __future__ import annotations

import pytest

from tests.docs_check import ROOT, anchors, check


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "adr" / "0001.md").write_text("# One\n\n## Why so\n")
    (tmp_path / "src").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/adr/0001.md)",
        "[a](docs/adr/0001.md#why-so)",
        "[a](docs/adr)",
        "[a](src/)",
        "[a](#here)",
        '[a](docs/adr/0001.md "with a title")',
        "[a](https://example.org/nothing)",
        "`[a](nothing.md)`",
        "```\n[a](nothing.md)\n```",
        "![picture](docs/adr/0001.md)",
        "[a]: docs/adr/0001.md",
    ],
)
def test_good_links(project, link):
    (project / "README.md").write_text(f"# Here\n\n{link}\n")
    assert check(project) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[a](nothing.md)", "there is no such file"),
        ("[a](docs/adr/0001.md#nothing)", "0001.md has no such heading"),
        ("[a](#nothing)", "README.md has no such heading"),
        ("[a](../other)", "leads out of the project"),
        ("[a](/etc/hostname)", "leads out of the project"),
        ("![picture](nothing.png)", "there is no such file"),
        ("[a]: nothing.md", "there is no such file"),
    ],
)
def test_broken_links(project, link, problem):
    (project / "README.md").write_text(f"# Here\n\n{link}\n")
    (found,) = check(project)
    assert found.startswith("README.md: ")
    assert found.endswith(problem)


def test_documents_in_folders_are_read_relative_to_their_place(project):
    (project / "docs" / "a.md").write_text("[a](adr/0001.md) [b](docs/adr/0001.md)\n")
    assert check(project) == ["docs/a.md: docs/adr/0001.md: there is no such file"]


def test_anchors_are_made_as_the_viewers_make_them():
    text = "# One, two: `three`\n\n## Same\n\n## Same\n\n```\n# not a heading\n```\n"
    assert anchors(text) == {"one-two-three", "same", "same-1"}


def test_the_projects_documents_have_no_broken_link():
    assert check(ROOT) == []
