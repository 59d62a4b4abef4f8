"""Commands that run and watch a broker.

They are: ``server``, ``broker``, ``clients``, ``app``, ``apply``,
``doctor``, ``top``, ``backup``, ``journal``, ``bench``, ``context``.
"""
