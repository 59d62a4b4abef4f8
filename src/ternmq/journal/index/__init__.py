"""Where each message is stored: by offset, id, key and time.

Reading order: ``index`` with ``feed`` (adding records), ``tail`` (the newest rows, in memory),
``coverage`` (which records are indexed); files: ``columns``, ``idx_file`` and ``idx_encode`` (one
segment), ``run``, ``run_file``, ``run_content``, ``run_jobs`` (several segments merged),
``bloom``, ``bloom_build``, ``sums``, ``batch_facts``; ``open`` (what a start finds).

Invariants: the index can be thrown away and is built again from the journal; a file of it that
does not fit is not used.
"""
