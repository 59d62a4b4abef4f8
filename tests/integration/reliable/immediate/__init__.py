"""A database backend: SQLite whose transactions begin with the lock, for Django before 5.1."""
