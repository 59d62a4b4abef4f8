"""Commands that run and watch a broker.

They are: ``server``, ``broker``, ``clients``, ``app``, ``apply``,
``doctor``, ``top``, ``journal``, ``bench``, ``context``.
"""
