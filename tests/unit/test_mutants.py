"""The runner of the mutants: patches fit the tree, and a run's end is read rightly."""

from __future__ import annotations

import ast
import importlib
import json
import sys
import types
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants import report
from tests.mutants.patch import (
    FIELDS,
    TEST,
    WORKLOAD,
    Patch,
    PatchError,
    load,
    parse,
    patched,
    reader,
    refreshed,
)
from tests.mutants.trial import CONTROL, Result, Verdict, a_test, attempt, copy_tree, judge, plant
from tests.sim.run import ROTATION

ROOT = Path(__file__).parents[2]
PATCHES = load(ROOT / "tests/mutants")
TEXT = "".join(f"line {at}\n" for at in range(1, 13))
DIFF = """\
# Mutant: what it
#   does
# Breaks: this
# Noticed: thus

--- a/some.py
+++ b/some.py
@@ -4,7 +4,7 @@
 line 4
 line 5
 line 6
-line 7
+line seven
 line 8
 line 9
 line 10
"""


def only(text: str) -> Patch:
    return parse("some", text)


def apply(patch: Patch, text: str) -> str:
    return patched(patch, lambda path: text)["some.py"]


# ------------------------------------------------------------------------------- the mutants


def test_mutants_are_there_and_numbered_once():
    numbers = [patch.name.partition("-")[0] for patch in PATCHES]
    assert len(numbers) > 50
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("patch", PATCHES, ids=[patch.name for patch in PATCHES])
def test_mutant_fits_the_tree_and_changes_what_it_says(patch):
    for name in FIELDS:
        assert patch.field(name), f"the comment block lacks {name}:"
    new = patched(patch, reader(ROOT))
    for path, text in new.items():
        assert path.startswith("src/ternmq/")
        old = (ROOT / path).read_text()
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(old)), "only comments change"
        gone = [line[1:] for hunk in patch.files[path] for line in hunk.lines if line[0] == "-"]
        come = [line[1:] for hunk in patch.files[path] for line in hunk.lines if line[0] == "+"]
        before, after = old.splitlines(), text.splitlines()
        assert len(after) - len(before) == len(come) - len(gone)
        for line in {*gone, *come}:
            count = come.count(line) - gone.count(line)
            assert after.count(line) - before.count(line) == count, line


def test_workloads_that_mutants_name_are_kinds_of_the_simulator():
    named = [kind for patch in PATCHES for kind in patch.field(WORKLOAD).split(",") if kind]
    assert named
    assert set(named) <= set(ROTATION)


def test_a_mutant_is_tried_with_the_workload_that_it_names(monkeypatch):
    tried = []

    def attempted(root, patch, command, seconds):
        tried.append(command[command.index("--kinds") + 1 :] if "--kinds" in command else [])
        return Result("some", Verdict.CAUGHT, 0.0, "")

    monkeypatch.setattr(command, "attempt", attempted)
    with_one = only(DIFF.replace("# Noticed: thus", "# Noticed: thus\n# Workload: owned,locked"))
    assert with_one.field("Noticed") == "thus"
    both = [only(DIFF), with_one]
    assert command.run(both, seconds=1.0, seed=1, at_once=1, control=False, path=None) == 0
    assert tried == [[], ["owned,locked"]]


def test_tests_that_mutants_name_are_there():
    named = [patch.field(TEST) for patch in PATCHES if patch.field(TEST)]
    assert named
    for node in named:
        path, _, function = node.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        kinds = ast.FunctionDef | ast.AsyncFunctionDef
        names = {one.name for one in ast.walk(tree) if isinstance(one, kinds)}
        assert function.partition("[")[0] in names, node


def test_a_mutant_is_tried_with_the_test_that_it_names(monkeypatch):
    tried = []

    def attempted(root, patch, command, seconds):
        tried.append(command)
        return Result("some", Verdict.CAUGHT, 0.0, "")

    monkeypatch.setattr(command, "attempt", attempted)
    with_one = only(DIFF.replace("# Noticed: thus", "# Noticed: thus\n# Test: tests/a.py::test_b"))
    assert command.run([with_one], seconds=1.0, seed=1, at_once=1, control=False, path=None) == 0
    assert tried == [a_test("tests/a.py::test_b")]


@pytest.mark.parametrize("patch", PATCHES, ids=[patch.name for patch in PATCHES])
def test_mutated_modules_still_import(patch):
    for path, text in patched(patch, reader(ROOT)).items():
        name = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        original = importlib.import_module(name)
        module = types.ModuleType(name)
        sys.modules[name] = module  # dataclasses look their module up
        try:
            exec(compile(text, path, "exec"), vars(module))
        finally:
            sys.modules[name] = original
        # Names with "@" are what pytest adds to a package that brings a plugin.
        names = {one for one in vars(original) if not one.startswith(("__", "@"))}
        assert names <= set(vars(module))


# ------------------------------------------------------------------------------- reading, fitting


def test_parse_and_apply():
    patch = only(DIFF)
    assert patch.field("Mutant") == "what it does"
    assert patch.field("Noticed") == "thus"
    assert apply(patch, TEXT) == TEXT.replace("line 7\n", "line seven\n")


def test_line_numbers_are_a_hint_only():
    text = "new\n" * 5 + TEXT
    assert apply(only(DIFF), text) == text.replace("line 7\n", "line seven\n")


def test_two_lines_of_context_at_either_end_may_differ():
    text = TEXT.replace("line 4\n", "4\n").replace("line 10\n", "10\n").replace("line 5\n", "5\n")
    assert "line seven\n" in apply(only(DIFF), text)
    with pytest.raises(PatchError, match="refresh"):
        apply(only(DIFF), text.replace("line 6\n", "6\n"))


def test_refresh_goes_further_and_writes_what_applies():
    text = TEXT.replace("line 4\n", "").replace("line 5\n", "5\n").replace("line 6\n", "6\n")
    again = refreshed(only(DIFF), lambda path: text)
    assert again.startswith("# Mutant: what it\n#   does\n")
    assert apply(only(again), text) == text.replace("line 7\n", "line seven\n")
    assert refreshed(only(again), lambda path: text) == again


def test_lines_that_are_gone_are_not_made_up():
    with pytest.raises(PatchError):
        refreshed(only(DIFF), lambda path: TEXT.replace("line 7\n", "line VII\n"))


def test_ambiguous_place_is_refused():
    with pytest.raises(PatchError):
        apply(only(DIFF), "new\n" + TEXT + TEXT)


def test_missing_file_is_said():
    with pytest.raises(PatchError, match=r"no some\.py"):
        patched(only(DIFF), reader(ROOT / "tests/golden"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Mutant: nothing\n",
        DIFF.replace("+++ b/some.py\n", ""),
        DIFF.replace(" line 10\n", ""),
        DIFF.replace("-line 7\n+line seven\n", " line 7\n"),
    ],
)
def test_broken_patches_are_refused(text):
    with pytest.raises(PatchError):
        only(text)


# ------------------------------------------------------------------------------- trials


def tree(folder: Path, simulator: str) -> Path:
    (folder / "src").mkdir(parents=True)
    (folder / "tests/sim").mkdir(parents=True)
    (folder / "src/some.py").write_text(TEXT)
    (folder / "tests/sim/run.py").write_text(simulator)
    return folder


MUTANT = DIFF.replace("/some.py", "/src/some.py")
SEES = """
import pathlib, sys
if "seven" in pathlib.Path("src/some.py").read_text():
    print("first")
    print("VIOLATION  python -m tests.sim replay tiny/1.2")
    print("Violation: seven")
    print("VIOLATION  python -m tests.sim replay tiny/1.3")
    sys.exit(1)
"""


def trial(folder: Path, simulator: str, mutant: str | None = MUTANT) -> Result:
    root = tree(folder, simulator)
    patch = None if mutant is None else parse("mutant", mutant)
    return attempt(root, patch, [sys.executable, "tests/sim/run.py"], seconds=20)


def test_caught_with_what_was_found_and_the_tree_is_left_alone(tmp_path):
    result = trial(tmp_path, SEES)
    assert (result.verdict, result.told) == (Verdict.CAUGHT, "Violation: seven | tiny/1.2")
    assert (tmp_path / "src/some.py").read_text() == TEXT


def test_control_is_clean(tmp_path):
    result = trial(tmp_path, SEES, None)
    assert (result.name, result.verdict) == (CONTROL, Verdict.SURVIVED)
    assert report.control_ok(result)


def test_survivor(tmp_path):
    assert trial(tmp_path, "print('fine')").verdict is Verdict.SURVIVED


def test_crashing_simulator_is_not_a_catch(tmp_path):
    result = trial(tmp_path, "raise SystemExit(2)")
    assert result.verdict is Verdict.BROKEN
    assert trial(tmp_path / "b", "print('VIOLATION x'); raise SystemExit(2)").told == "x"


def test_a_name_that_is_not_there_is_not_a_catch(tmp_path):
    """The patch fits its lines, but what it names went elsewhere: any run finds that."""
    found = SEES.replace("Violation: seven", "NameError: name 'x' is not defined")
    assert trial(tmp_path, found).verdict is Verdict.BROKEN


def test_inapplicable(tmp_path):
    result = trial(tmp_path, SEES, MUTANT.replace("line 7", "line VII"))
    assert result.verdict is Verdict.INAPPLICABLE
    assert "refresh" in result.told


def test_hung_run_counts_as_survivor_whatever_it_said():
    assert judge("m", -9, "VIOLATION x\n", 90.0, hung=True).verdict is Verdict.HUNG


TESTED = MUTANT.replace("# Noticed: thus", "# Noticed: thus\n# Test: tests/test_some.py::test_it")
FAILS = """
import pathlib

def test_it():
    assert "seven" not in pathlib.Path("src/some.py").read_text()
"""


@pytest.mark.parametrize(
    ("test", "verdict", "told"),
    [
        (FAILS, Verdict.CAUGHT, "tests/test_some.py::test_it"),
        ("def test_it():\n    pass\n", Verdict.SURVIVED, ""),
        ("def test_it():\n    missing()\n", Verdict.BROKEN, "NameError"),
        ("import pytest\n\ndef test_it():\n    pytest.skip('no server')\n", Verdict.BROKEN, ""),
        ("def test_other():\n    pass\n", Verdict.BROKEN, "exit code"),
    ],
    ids=["fails", "passes", "not-defined", "skipped", "not-there"],
)
def test_a_test_judges(tmp_path, test, verdict, told):
    root = tree(tmp_path, "")
    (root / "tests/test_some.py").write_text(test)
    patch = parse("mutant", TESTED)
    result = attempt(root, patch, a_test("tests/test_some.py::test_it"), seconds=60)
    assert result.verdict is verdict, result
    assert told in result.told


def test_copy_leaves_out_what_is_made(tmp_path):
    root = tree(tmp_path / "a", "")
    (root / "src/__pycache__").mkdir()
    (root / "tests/results.json").write_text("{}")
    copy_tree(root, tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").rglob("*.*")) == ["run.py", "some.py"]
    plant(parse("m", MUTANT), tmp_path / "b")
    assert "line seven" in (tmp_path / "b/src/some.py").read_text()


# ------------------------------------------------------------------------------- report, command


CLEAN = Result(CONTROL, Verdict.SURVIVED, 60.0, "")
CAUGHT = Result("01-a", Verdict.CAUGHT, 2.5, "loss")
SURVIVOR = Result("02-b", Verdict.SURVIVED, 60.2, "")


def test_summary_names_survivors_and_a_control_that_is_not_clean():
    text = report.summary(CLEAN, [CAUGHT, SURVIVOR])
    assert "1 of 2 mutants caught; slowest 01-a in 2.5 s" in text
    assert "02-b is SURVIVED" in text
    dirty = Result(CONTROL, Verdict.CAUGHT, 3.0, "oops")
    assert "mean nothing" in report.summary(dirty, [CAUGHT])


def test_json_is_whole(tmp_path):
    path = tmp_path / "results.json"
    report.write(path, CLEAN, [CAUGHT, SURVIVOR], seconds=60, seed=7, at_once=2)
    content = json.loads(path.read_text())
    assert content["seed"] == 7
    assert content["machine"]["cores"]
    assert [one["verdict"] for one in content["mutants"]] == ["caught", "survived"]


@pytest.mark.parametrize(
    ("control", "mutants", "code"),
    [(CLEAN, [CAUGHT], 0), (CLEAN, [CAUGHT, SURVIVOR], 1), (CAUGHT, [CAUGHT], 1)],
)
def test_exit_code(monkeypatch, capsys, control, mutants, code):
    results = iter([control, *mutants])
    monkeypatch.setattr(command, "attempt", lambda *arguments: next(results))
    got = command.run(
        PATCHES[: len(mutants)], seconds=1, seed=1, at_once=1, control=True, path=None
    )
    assert got == code
    assert capsys.readouterr().out


TEST_FAILS = Result(CONTROL, Verdict.BROKEN, 3.0, "exit code 1")


@pytest.mark.parametrize(("tests", "code"), [(CLEAN, 0), (TEST_FAILS, 1)])
def test_tests_that_are_named_are_run_without_a_mutant_too(monkeypatch, capsys, tests, code):
    one = only(DIFF.replace("# Noticed: thus", "# Noticed: thus\n# Test: tests/a.py::test_b"))
    two = only(DIFF.replace("# Noticed: thus", "# Noticed: thus\n# Test: tests/a.py::test_c"))
    results = iter([tests, CLEAN, CAUGHT, CAUGHT, CAUGHT])
    commands = []

    def attempted(root, patch, command, seconds):
        commands.append((patch, command))
        return next(results)

    monkeypatch.setattr(command, "attempt", attempted)
    got = command.run([one, two, one], seconds=1, seed=1, at_once=1, control=True, path=None)
    assert commands[0] == (None, a_test("tests/a.py::test_b", "tests/a.py::test_c"))
    assert got == code
    assert ("fails without them" in capsys.readouterr().out) is bool(code)


def test_list_and_unknown_name(capsys):
    assert command.main(["list", "01"]) == 0
    assert "01-" in capsys.readouterr().out
    assert command.main(["run", "nothing-of-this-name"]) == 1
