"""stac-fastapi over pgstac: items of a catalogue, by links and tokens."""

import json
import os
import subprocess
import sys

import data
from check import manifest
from compare import read_geopackage
from servers.postgres import Database
from servers.process import Process
from tidegate import Failed, tidegate

QUICK = False
POSTGRES = True
APT = ("postgresql-15-postgis-3",)
PIP = ("stac-fastapi.pgstac", "pypgstac[psycopg]", "uvicorn", "pyproj", "psycopg[binary]")
COUNT = 1200


def item(feature):
    kind, shape = feature.geometry
    x, y = shape
    stamp = feature.values["stamp"] or "2020-01-01T00:00:00Z"
    return {
        "type": "Feature", "stac_version": "1.0.0", "id": f"scene-{feature.id:05d}", "collection": "real",
        "geometry": {"type": kind, "coordinates": shape}, "bbox": [x, y, x, y],
        "properties": {"datetime": stamp, "name": feature.values["name"], "big": feature.values["big"]},
        "links": [], "assets": {"data": {"href": f"http://127.0.0.1/{feature.id}.tif", "type": "image/tiff"}},
    }


class Suite:
    def __init__(self, world):
        self.database = Database("stac")
        try:
            self.start(world)
        except Exception:
            self.database.stop()
            raise

    def start(self, world):
        folder = world.path("pgstac", "")
        self.features = [f for f in world.layers["points_4326"] if f.geometry][:COUNT]
        parts = self.database.parts
        env = {"PGHOST": parts.hostname, "PGPORT": str(parts.port or 5432), "PGUSER": parts.username or "postgres",
               "PGDATABASE": self.database.name, "PGPASSWORD": "none", "POSTGRES_USER": parts.username or "postgres",
               "POSTGRES_PASS": "none", "POSTGRES_HOST_READER": parts.hostname,
               "POSTGRES_HOST_WRITER": parts.hostname, "POSTGRES_PORT": str(parts.port or 5432),
               "POSTGRES_DBNAME": self.database.name, "POSTGRES_HOST": parts.hostname, "USE_API_HYDRATE": "false"}
        tool = os.path.join(os.path.dirname(sys.executable), "pypgstac")
        run = lambda *a: subprocess.run([tool, *a], check=True, env=dict(os.environ, **env), capture_output=True)

        def load(name, rows, method="insert"):
            path = os.path.join(folder, f"{name}.json")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            run("load", name, path, "--method", method)

        self.load = load
        run("migrate")
        collection = {"type": "Collection", "id": "real", "stac_version": "1.0.0", "description": "real",
                      "license": "none", "links": [], "extent": {"spatial": {"bbox": [[-180, -90, 180, 90]]},
                                                                 "temporal": {"interval": [[None, None]]}}}
        load("collections", [collection])
        load("items", [item(f) for f in self.features])
        uvicorn = os.path.join(os.path.dirname(sys.executable), "uvicorn")
        command = [uvicorn, "--factory", "stac_fastapi.pgstac.app:create_app", "--host", "127.0.0.1", "--port", "{port}",
                   "--log-level", "warning"]
        self.process = Process(command, folder, "/_mgmt/ping", env)
        self.url = self.process.url

    def stop(self):
        self.process.stop()
        self.database.stop()


def items(*more):
    def go(s, w, name):
        place = w.place(name)
        out = os.path.join(place, "out.gpkg")
        tidegate("fetch", s.url, "--profile", "stac", "--layer", "real", "-o", out, *more, cwd=place).ok()
        rows, srs, columns = read_geopackage(out)
        wrong = []
        if srs != 4326:
            wrong.append(f"the output says EPSG:{srs}")
        identifier = next((c for c in ("id", "feature_id", "stac_id") if c in columns), None)
        if not identifier:
            raise Failed(f"{len(rows)} rows, no column has the identifier of the item: {', '.join(columns)}")
        by_id = {row[0][identifier]: row for row in rows}
        if len(by_id) != len(s.features) or len(rows) != len(s.features):
            wrong.append(f"{len(rows)} rows, {len(by_id)} identifiers, expected were {len(s.features)}")
        for feature in s.features:
            row = by_id.get(f"scene-{feature.id:05d}")
            if row is None:
                wrong.append(f"{feature.id} is missing")
                continue
            for field in ("name", "big"):
                if row[0].get(field) != feature.values[field]:
                    wrong.append(f"{feature.id}: {field} {feature.values[field]!r} became {row[0].get(field)!r}")
            if tuple(row[1][1]) != tuple(feature.geometry[1]):
                wrong.append(f"{feature.id}: {feature.geometry} became {row[1]}")
        if wrong:
            raise Failed(f"{len(wrong)} differences: " + "; ".join(wrong[:5]))

    return go


def changes(s, w, name):
    """The second run asks only for items from the highest `datetime` on."""
    place = w.place(name)
    sink = {"file": "copy.gpkg", "key": ["id"], "mode": "sync"}
    source = {"since": {"field": "datetime", "overlap_seconds": 0}}
    path = manifest(place, name, s.url, "stac", "real", sink, source)
    run = lambda: tidegate("run", path, "--format", "json", cwd=place).ok().result
    first = run()
    if first["inserted"] != len(s.features):
        raise Failed(f"{first['inserted']} of {len(s.features)} items")
    changed = [item(f) for f in s.features if f.id % 50 == 0]
    for row in changed:
        row["properties"].update(datetime="2026-01-01T00:00:00Z", name="changed")
    s.load("items", changed, "upsert")
    second = run()
    # The item with the highest time of the first run comes once more.
    if second["updated"] != len(changed) or not len(changed) <= second["read"] <= len(changed) + 2:
        raise Failed(f"{len(changed)} items have changed: {second}")


# The last case changes the catalogue.
CASES = {"items": items(), "small_pages": items("--page-size", "100"), "changes": changes}
