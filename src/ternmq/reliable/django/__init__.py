"""A Django app that makes the tables of this package.

Put ``ternmq.reliable.django`` into ``INSTALLED_APPS`` and run ``manage.py migrate``. Modules:
``apps``, ``migrations``.
"""
