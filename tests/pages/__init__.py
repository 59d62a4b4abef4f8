"""The documents: what is made of the code, what runs, what names things that must be there.

``python -m tests.pages`` (``make docs``) writes anew what is made of the code. Reading order:
``made`` (which page is made of what), ``api``, ``errors``, ``metrics``; ``blocks`` and ``shell``
run what a page shows.
"""
