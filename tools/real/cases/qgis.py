"""QGIS Server over a GeoPackage: WFS 1.1 in GML and GeoJSON, and OGC API Features.

What QGIS Server does (3.22, recorded from the answers):
- GeoJSON is in WGS 84 with six decimals whatever SRSNAME says, and says nothing about it.
- GML names `EPSG:31468` before north, east; asked by URN it names the URN, in the same order.
- `application/vnd.geo+json` is what it offers; `application/json` works as well.
- Times have no zone, with or without one in the source. NULL is `xsi:nil`.
- GML has no characters beyond the first plane, and loses a `]]>` in text that holds markup.
- The name of the server in its header is UTF-8.
"""

import re

import data
from check import fetch, run_twice
from compare import Leniency
from servers.qgis import Qgis, from_geopackage

QUICK = False
APT = ("qgis-server",)
PROGRAMS = ("qgis_mapserv.fcgi",)
PIP = ("pyproj",)

GML = Leniency(zone=True, places=8, text=lambda text: re.sub("[\U00010000-\U0010ffff]|(?<=no)]]>", "", text))
JSON = Leniency(zone=True, places=6, metres=6)
WFS = ("--profile", "geoserver-wfs")


class Suite:
    def __init__(self, world):
        self.world = world
        self.path = world.geopackage("qgis")
        self.server = Qgis(world.path("qgis", ""), from_geopackage(self.path))

    def stop(self):
        self.server.stop()


def gml(layer):
    return lambda s, w, n: fetch(w, n, layer, s.server.wfs, (*WFS, "--body", "gml"), GML)


def json(layer, *more):
    # Right is what it says of itself: the system in the output fits the coordinates.
    return lambda s, w, n: fetch(w, n, layer, s.server.wfs, (*WFS, "--body", "geojson", *more), JSON, epsg=4326)


def auto(layer):
    return lambda s, w, n: fetch(w, n, layer, s.server.wfs, WFS, JSON, epsg=4326)


def twice(s, w, n):
    layer = "polygons_25832"
    change = lambda features: data.write_geopackage(s.path, {layer: features})
    restore = lambda: data.write_geopackage(s.path, {layer: w.layers[layer]})
    source = {"paging": {"body": "gml"}}
    return run_twice(w, n, layer, s.server.wfs, "geoserver-wfs", GML, change, restore, source)


CASES = {
    **{f"wfs1.gml.{layer}": gml(layer) for layer in data.LAYERS},
    **{f"wfs1.auto.{layer}": auto(layer) for layer in ("points_4326", "polygons_31468", "points_3035")},
    "wfs1.json.asked": json("polygons_25832", "--crs", "EPSG:25832"),
    "wfs3": lambda s, w, n: fetch(w, n, "points_2154", s.server.ogc, ("--profile", "ogcapi"), JSON, epsg=4326),
    "run_twice": twice,
}
