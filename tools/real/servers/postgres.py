"""A database of our own in the PostgreSQL server that the tests use (tools/with-postgres)."""

import os
import urllib.parse


class Database:
    """Made with PostGIS in it, and dropped at the end."""

    def __init__(self, name):
        import psycopg

        self.base = os.environ["TIDEGATE_TEST_DATABASE"]
        self.name = f"tidegate_{name}_{os.getpid()}"
        with psycopg.connect(self.base, autocommit=True) as db:
            db.execute(f"drop database if exists {self.name} with (force)")
            db.execute(f"create database {self.name} encoding 'UTF8' template template0")
        parts = urllib.parse.urlsplit(self.base)
        self.parts = parts
        self.url = urllib.parse.urlunsplit(parts._replace(path="/" + self.name))
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("create extension postgis")

    @property
    def words(self):
        """As a connection string of libpq."""
        p = self.parts
        return f"host={p.hostname} port={p.port or 5432} user={p.username or 'postgres'} dbname={self.name}"

    def stop(self):
        import psycopg

        with psycopg.connect(self.base, autocommit=True) as db:
            db.execute(f"drop database if exists {self.name} with (force)")
