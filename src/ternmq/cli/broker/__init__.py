"""Commands that run and watch a broker.

They are: ``server``, ``broker``, ``clients``, ``app``, ``apply``,
``doctor``, ``top``, ``backup``, ``journal``, ``bench``, ``context``. Of broker groups: ``cluster``
with ``cluster_view`` (what its status shows) and ``cluster_orders``, ``broker_list``.
"""
