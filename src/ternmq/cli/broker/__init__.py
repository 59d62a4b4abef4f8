"""Commands that run and watch a broker.

They are: ``server``, ``broker``, ``clients``, ``app``, ``apply``,
``doctor``, ``top``, ``backup``, ``journal``, ``bench``, ``context``. Of broker groups: ``cluster``
with ``cluster_view`` (what its status shows), ``cluster_orders`` and ``cluster_dev``,
``broker_list``.
"""
