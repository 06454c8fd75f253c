"""Migrations of the tables, one file for each version; the leader runs those that are missing."""
