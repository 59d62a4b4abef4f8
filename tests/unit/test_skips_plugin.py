"""The rule about skips: unexplained ones fail the run, whatever way they come about."""

from __future__ import annotations

import pytest

from tests.skips_plugin import read_allowed

ALLOWED = """
[[skip]]
test = "test_it.py::test_*"
reason = "needs strace*"
why = "not every machine has it"
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makefile(".toml", allowed=ALLOWED)
    pytester.makeini("[pytest]\nallowed_skips = allowed.toml\n")
    return pytester


def run(project: pytest.Pytester, source: str) -> pytest.RunResult:
    project.makepyfile(test_it="import pytest\n" + source)
    return project.runpytest("-p", "tests.skips_plugin")


def assert_fails_on(result: pytest.RunResult, line: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*skips that nothing explains: the run fails*", line])


def test_explained_skip_passes(project):
    result = run(
        project,
        'def test_a(): pytest.skip("needs strace 6")\n'
        '@pytest.mark.skipif(True, reason="needs strace")\ndef test_b(): pass\n'
        "def test_c(): pass\n",
    )
    result.assert_outcomes(passed=1, skipped=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*nothing explains*")


def test_unexplained_reason_fails_and_the_closing_line_stays(project):
    result = run(project, 'def test_a(): pytest.skip("lazy")\ndef test_b(): pass\n')
    assert_fails_on(result, "test_it.py::test_a: lazy")
    result.stdout.fnmatch_lines(["*1 passed, 1 skipped in *"])


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("@pytest.mark.skip\ndef test_a(): pass\n", "test_it.py::test_a: unconditional skip"),
        (
            '@pytest.fixture\ndef f(): pytest.skip("in setup")\ndef test_a(f): pass\n',
            "test_it.py::test_a: in setup",
        ),
        (
            'class TestIt:\n    def test_a(self): pytest.skip("needs strace")\n',
            "test_it.py::TestIt::test_a: needs strace",
        ),
        ('pytest.skip("whole file", allow_module_level=True)\n', "test_it.py: whole file"),
        ('pytest.importorskip("no_such_module_anywhere")\n', "test_it.py: could not import*"),
        (
            '@pytest.mark.xfail(reason="broken")\ndef test_a(): assert False\n',
            "test_it.py::test_a: xfail: broken",
        ),
    ],
    ids=["mark", "setup", "other-test-id", "module", "importorskip", "xfail"],
)
def test_every_kind_of_skip_is_seen(project, source, line):
    assert_fails_on(run(project, source), line)


def test_a_failure_stays_a_failure_and_an_interrupt_an_interrupt(project):
    result = run(project, 'def test_a(): pytest.skip("lazy")\ndef test_b(): assert False\n')
    assert_fails_on(result, "test_it.py::test_a: lazy")
    result = run(project, 'def test_a(): pytest.skip("lazy")\ndef test_b(): pytest.exit("stop")\n')
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    "text",
    [
        '[[skip]]\ntest = "*"\nreason = "*"\n',
        '[[skip]]\ntest = "*"\nreason = "*"\nwhy = " "\n',
        '[[skip]]\ntest = "*"\nreason = "*"\nwhy = "x"\nowner = "y"\n',
        '[[skip]]\ntest = "*"\nreason = "*"\nwhy = 1\n',
    ],
)
def test_an_entry_must_say_why(tmp_path, text):
    path = tmp_path / "allowed.toml"
    path.write_text(text)
    with pytest.raises(pytest.UsageError, match="entry 1 must have"):
        read_allowed(path)


def test_the_projects_table_can_be_read_and_excuses_nothing_wholesale():
    for entry in read_allowed():
        assert entry.test != "*"
        assert entry.reason != "*"
