"""All tests with each newer Python; see ``__main__``.

* ``found``: where a Python of a version comes from: the machine, or a Debian folder.
* ``debian``: that folder; made by debootstrap, entered with mounts of its own.
* ``results.json``: the last run of all tests, version by version, with the commit; and what failed
  in it, run again with a later commit. Besides 3.11, the classifiers in ``pyproject.toml`` name
  exactly the versions with which each test passed there; ``tests/unit/test_pythons.py`` sees to it.
"""
