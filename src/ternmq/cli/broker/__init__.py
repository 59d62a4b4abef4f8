"""Commands that run and watch a broker.

They are: ``server``, ``broker``, ``clients``, ``app``, ``apply``,
``doctor``, ``top``, ``backup``, ``journal``, ``bench``, ``context``. Of broker groups: ``cluster``
with ``cluster_view`` (what its status shows), ``cluster_orders``, ``cluster_loss`` (what an order
would lose), ``cluster_restore`` (how a group begins) and ``cluster_dev``, ``broker_list``.
"""
