"""What a client must know of its process.

``forking``: a child of a fork must not use its parent's connections. ``exiting``: what still
runs when the interpreter ends. ``pickling``: what cannot be handed to another process. ``steady``:
the clock.
"""
