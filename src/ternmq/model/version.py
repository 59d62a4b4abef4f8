"""The version of TernMQ: what a client and a broker call themselves.

A module of its own, so that no part of the package imports the whole of it to learn this.
"""

__version__ = "0.1.0.dev0"
