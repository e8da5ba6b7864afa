"""tipg: OGC API Features over PostGIS. It refuses a limit above its own (422)."""

import os
import sys

import data
from check import fetch, run_twice, sync_changes
from compare import Leniency
from servers.process import Process

QUICK = False
POSTGRES = True
APT = ("postgresql-15-postgis-3",)
PIP = ("tipg", "uvicorn", "pyproj", "psycopg[binary]")
LENIENT = Leniency(zone=True, digits=13, metres=6)
OGC = ("--profile", "ogcapi")


class Suite:
    def __init__(self, world):
        self.world = world
        world.database
        uvicorn = os.path.join(os.path.dirname(sys.executable), "uvicorn")
        env = {"DATABASE_URL": world.database.url, "TIPG_MAX_FEATURES_PER_QUERY": "700",
               "TIPG_DEFAULT_FEATURES_LIMIT": "10", "TIPG_DB_SCHEMAS": '["public"]'}
        command = [uvicorn, "tipg.main:app", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"]
        self.process = Process(command, world.path("tipg", ""), "/healthz", env)
        self.url = self.process.url

    def stop(self):
        self.process.stop()


def stored(layer, *more):
    return lambda s, w, n: fetch(w, n, layer, s.url, (*OGC, *more), LENIENT, epsg=4326, remote=f"public.{layer}")


def twice(s, w, n):
    layer = "points_2154"
    change = lambda features: data.write_postgis(w.database.url, {layer: features})
    restore = lambda: change(w.layers[layer])
    return run_twice(w, n, layer, s.url, "ogcapi", LENIENT, change, restore, remote=f"public.{layer}", epsg=4326)


def synced(s, w, n):
    layer = "points_2154"
    change = lambda features: data.write_postgis(w.database.url, {layer: features})
    restore = lambda: change(w.layers[layer])
    sync_changes(w, n, layer, s.url, "ogcapi", LENIENT, change, restore, remote=f"public.{layer}", epsg=4326)


CASES = {
    **{layer: stored(layer) for layer in data.LAYERS},
    "small_pages": stored("points_4326", "--page-size", "250"),
    "run_twice": twice,
    "sync": synced,
}
