"""The version of TernMQ, as clients and brokers report it.

It is a module of its own, so that no part has to import the whole package to get it.
"""

__version__ = "0.1.0.dev0"
