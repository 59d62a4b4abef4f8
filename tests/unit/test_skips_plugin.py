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


def run(project: pytest.Pytester, source: str, workers: tuple[str, ...] = ()) -> pytest.RunResult:
    project.makepyfile(test_it="import pytest\n" + source)
    return project.runpytest("-p", "tests.skips_plugin", *workers)


def assert_fails_on(result: pytest.RunResult, line: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*skips that nothing explains: the run fails*", line])


# With workers, reports and skips come from them to the process that judges.
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_explained_skip_passes(project, workers):
    result = run(
        project,
        'def test_a(): pytest.skip("needs strace 6")\n'
        '@pytest.mark.skipif(True, reason="needs strace")\ndef test_b(): pass\n'
        "def test_c(): pass\n",
        workers,
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


def test_workers_tell_every_kind_of_skip_once(project):
    """By themselves they report one of the files that skip at one place in the code."""
    project.makepyfile(
        wants='import pytest\ndef tool(): pytest.skip("lazy", allow_module_level=True)'
    )
    project.makepyfile(test_one="import wants\nwants.tool()\n")
    project.makepyfile(test_two="import wants\nwants.tool()\n")
    result = run(
        project,
        'def test_a(): pytest.skip("in test")\n'
        '@pytest.fixture\ndef f(): pytest.skip("in setup")\ndef test_b(f): pass\n'
        '@pytest.mark.xfail(reason="broken")\ndef test_c(): assert False\n',
        ("-n", "2"),
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = result.outlines[
        result.outlines.index("Run them, or explain them in tests/allowed_skips.toml.") - 5 :
    ]
    assert sorted(told[:5]) == [
        "test_it.py::test_a: in test",
        "test_it.py::test_b: in setup",
        "test_it.py::test_c: xfail: broken",
        "test_one.py: lazy",
        "test_two.py: lazy",
    ]


def test_only_files_that_skip_in_workers_are_no_success(project):
    result = run(project, 'pytest.skip("whole file", allow_module_level=True)\n', ("-n", "2"))
    assert_fails_on(result, "test_it.py: whole file")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_failure_stays_a_failure_and_an_interrupt_an_interrupt(project, workers):
    lazy = 'def test_a(): pytest.skip("lazy")\n'
    result = run(project, lazy + "def test_b(): assert False\n", workers)
    assert_fails_on(result, "test_it.py::test_a: lazy")
    result = run(project, lazy + 'def test_b(): pytest.exit("stop")\n', workers)
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
