"""Mutants: known bugs, planted one at a time, that the simulator has to find.

Each ``NN-name.patch`` is a unified diff against ``src/``. Its comment block says what it plants
(``Mutant:``), which invariant that breaks (``Breaks:``) and how it should be noticed
(``Noticed:``). ``python -m tests.mutants`` copies ``src/`` and ``tests/`` for each, applies the
patch to the copy and runs the simulator there. A mutant that is not caught in time is a defect
of the simulator, not of the broker: mend `tests/sim`, never the patch.

What the simulator does not contain (the reliable component works on an application's database) is
found by a test: the field ``Test:`` names it as pytest does.

The unpatched tree is run as well, as the control, with the simulator and with the tests that are
named: if one of them complains there, a "caught" says nothing.

Reading order: ``patch`` (reading, applying and making diffs), ``trial`` (one mutant, one run),
``report`` (the table and ``results.json``), ``__main__``. ``README.md`` lists those of the
reliable component, with the run that is in ``results-reliable.json``.

A new mutant: change a copy of the tree by hand, ``git diff`` into ``NN-name.patch``, write the
comment block above it. When the source has moved on and a patch no longer applies: ``python -m
tests.mutants refresh`` finds the lines again where only the text around them or their line
numbers changed, and writes the diff anew; where the changed lines themselves are gone, the
mutant has to be planted again by hand.
"""
