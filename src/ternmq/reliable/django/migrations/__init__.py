"""Migrations: ``0001_outbox`` makes the tables of version 1."""
