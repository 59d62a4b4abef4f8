"""Objects in the form of JSON: the one form that commands print and the HTTP API answers.

A module for each kind of object: ``messages`` (and back), ``topics``, ``groups``, ``failures``,
``scheduled``, ``apps``, ``clients``; ``values`` (times and durations). A form only gains fields:
scripts and services read it.
"""
