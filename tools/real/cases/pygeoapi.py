"""pygeoapi: OGC API Features over GeoJSON and PostGIS.

It takes the coordinates of a stored system that puts north first to be north first, which in PostGIS
they never are, and so serves such layers somewhere else (0.21). The extent that it declares shows it:
a fetch must be refused.
"""

import json
import os
import sys

import data
from check import fetch, refused, run_twice
from compare import Leniency
from servers.process import Process

QUICK = False
POSTGRES = True
APT = ("postgresql-15-postgis-3",)
PIP = ("pygeoapi", "pyproj", "psycopg[binary]", "psycopg2-binary", "sqlalchemy", "geoalchemy2", "gunicorn")

#: PostGIS keeps no zone in `timestamp`; pygeoapi writes times as Python does.
LENIENT = Leniency(zone=True, digits=13, metres=6)
OGC = ("--profile", "ogcapi")


def extent(layer):
    """Where a layer is, in degrees: what its owner would declare."""
    from pyproj import Transformer

    epsg, _, *box = data.LAYERS[layer]
    return [round(n, 1) for n in Transformer.from_crs(epsg, 4326, always_xy=True).transform_bounds(*box)]


def collection(name, provider, layer):
    return {
        "type": "collection", "title": name, "description": name, "keywords": ["real"], "links": [],
        "extents": {"spatial": {"bbox": extent(layer), "crs": "http://www.opengis.net/def/crs/OGC/1.3/CRS84"}},
        "providers": [provider],
    }


class Suite:
    def __init__(self, world):
        self.world = world
        folder = world.path("pygeoapi", "")
        self.geojson = os.path.join(folder, "points.geojson")
        self.change(world.layers["points_4326"])
        parts, resources = world.database.parts, {}
        resources["geojson"] = collection(
            "geojson", {"type": "feature", "name": "GeoJSON", "data": self.geojson, "id_field": "id"}, "points_4326")
        crs = lambda epsg: f"http://www.opengis.net/def/crs/EPSG/0/{epsg}"
        for name, (epsg, *_) in data.LAYERS.items():
            resources[name] = collection(name, {
                "type": "feature", "name": "PostgreSQL", "id_field": "id", "table": name, "geom_field": "geom",
                "data": {"host": parts.hostname, "port": parts.port or 5432, "dbname": world.database.name,
                         "user": parts.username or "postgres", "password": "none", "search_path": ["public"]},
                "crs": [crs(epsg), crs(4326), "http://www.opengis.net/def/crs/OGC/1.3/CRS84"],
                "storage_crs": crs(epsg),
            }, name)
        config = {
            "server": {
                "bind": {"host": "127.0.0.1", "port": 0}, "url": "", "mimetype": "application/json; charset=UTF-8",
                "encoding": "utf-8", "language": "en-US", "gzip": False, "cors": False,
                "map": {"url": "http://127.0.0.1/", "attribution": "none"},
                "limits": {"default_items": 10, "max_items": 500, "on_exceed": "throttle"},
            },
            "logging": {"level": "ERROR"},
            "metadata": {
                "identification": {"title": "real", "description": "real", "keywords": ["real"],
                                   "keywords_type": "theme", "terms_of_service": "none", "url": "http://127.0.0.1/"},
                "license": {"name": "none", "url": "http://127.0.0.1/"},
                "provider": {"name": "real", "url": "http://127.0.0.1/"},
                "contact": {"name": "real", "email": "real@example.invalid"},
            },
            "resources": resources,
        }
        from servers.process import free_port

        self.config = os.path.join(folder, "config.yml")
        port = free_port()
        config["server"]["bind"]["port"] = port
        config["server"]["url"] = f"http://127.0.0.1:{port}"
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump(config, file)
        env = {"PYGEOAPI_CONFIG": self.config, "PYGEOAPI_OPENAPI": os.path.join(folder, "openapi.json")}
        with open(env["PYGEOAPI_OPENAPI"], "w", encoding="utf-8") as file:
            json.dump({"openapi": "3.0.2", "info": {"title": "real", "version": "1"}, "paths": {}}, file)
        gunicorn = os.path.join(os.path.dirname(sys.executable), "gunicorn")
        command = [gunicorn, "-b", f"127.0.0.1:{port}", "-w", "1", "--threads", "4", "pygeoapi.flask_app:APP"]
        self.process = Process(command, folder, "/conformance", env, port=port)
        self.url = self.process.url

    def change(self, features):
        with open(self.geojson, "w", encoding="utf-8") as file:
            file.write(data.geojson(features, 4326))

    def stop(self):
        self.process.stop()


def stored(layer):
    return lambda s, w, n: fetch(w, n, layer, s.url, OGC, LENIENT, epsg=4326)


def misplaced(layer):
    return lambda s, w, n: refused(w, n, layer, s.url, OGC, "CRS_MISMATCH")


def asked(layer):
    epsg = data.LAYERS[layer][0]
    return lambda s, w, n: fetch(w, n, layer, s.url, (*OGC, "--crs", f"EPSG:{epsg}"), LENIENT, epsg=epsg)


def twice(s, w, n):
    exact = Leniency()
    restore = lambda: s.change(w.layers["points_4326"])
    return run_twice(w, n, "points_4326", s.url, "ogcapi", exact, s.change, restore, remote="geojson")


CASES = {
    "geojson": lambda s, w, n: fetch(w, n, "points_4326", s.url, OGC, Leniency(), remote="geojson"),
    **{f"postgis.{layer}": stored(layer) for layer in ("polygons_25832", "points_2154")},
    **{f"misplaced.{layer}": misplaced(layer) for layer in ("points_4326", "polygons_31468", "points_3035")},
    "asked_crs.polygons_25832": asked("polygons_25832"),
    "asked_crs.points_2154": asked("points_2154"),
    "run_twice": twice,
}
