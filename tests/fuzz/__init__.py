"""Fuzzers: what comes from outside, bent in every way, in this process and for so many seconds.

``python -m tests.fuzz --target frames --seconds 60`` (or ``records``, ``expressions``; without
``--target`` all); ``make fuzz SECONDS=60``. Reading order: ``engine`` (how inputs are bent and
judged), ``frames``, ``records`` and ``expressions`` (what is tried, each with its invariant in one
sentence), ``__main__``.

``corpus/`` holds what to begin with: sound inputs (``--sow`` writes them again from the golden
files) and those that reached something new (``--keep`` adds them). ``test_fuzz.py`` runs all of it,
and two seconds of each target, with every test run.
"""
