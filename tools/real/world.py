"""What every case finds: the generated layers, and a directory of its own."""

import os
import shutil

import data


class World:
    """`layers` are the features by layer; `geopackage` is a file that holds them all."""

    def __init__(self, directory):
        self.directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory)
        self.layers = {name: data.layer(name) for name in data.LAYERS}
        self._database = None

    def path(self, *parts):
        """A place under the directory; the folders above it are made."""
        path = os.path.join(self.directory, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def place(self, name):
        """An empty directory for a case."""
        path = self.path("cases", name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def geopackage(self, name="layers"):
        """A new GeoPackage with all layers."""
        path = self.path(f"{name}.gpkg")
        if os.path.exists(path):
            os.remove(path)
        data.write_geopackage(path, self.layers)
        return path

    @property
    def database(self):
        """A database with all layers as tables."""
        if self._database is None:
            from servers.postgres import Database

            self._database = Database("real")
            data.write_postgis(self._database.url, self.layers)
        return self._database

    def stop(self):
        if self._database is not None:
            self._database.stop()
