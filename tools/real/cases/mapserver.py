"""MapServer over a GeoPackage: WFS 1.1 and 2.0 in GML and GeoJSON, and OGC API Features.

What MapServer does, and a client has to live with (8.0, recorded from the answers):
- Features without geometry are never served, and `hits` does not count them.
- GML has six decimals of a coordinate, NULL is an empty element, every time has a `Z`.
- WFS 2.0 pages say `numberMatched="unknown"` until the last one; sorted pages have no `next`.
- WFS 1.1 `hits` is cut at `wfs_maxfeatures`, and `srsName="EPSG:4326"` stands before north, east, also
  if the layer is asked for by URN.
- GeoJSON is offered as `application/json; subtype=geojson`; `application/json` is refused
  (400, InvalidParameterValue). It has no `crs` and no `id`, and is in the layer's own system.
- OGC API Features: coordinates are rounded up at the sixth decimal, numbers are numbers, NULL is the empty text beside them, `true` is `"1"`.
"""

import data
from check import fetch, pace, refused, run_twice, sync_changes
from compare import Leniency
from servers.mapserver import DEGREES, Mapserver, from_geopackage

QUICK = True
APT = ("cgi-mapserver", "gdal-bin")
PROGRAMS = ("mapserv", "ogr2ogr")
PIP = ("pyproj",)

GML = Leniency(blank=True, zone=True, places=6, null_geometry=False, digits=13)
JSON = Leniency(blank=True, zone=True, null_geometry=False, digits=13)
WFS = ("--profile", "geoserver-wfs")


class Suite:
    def __init__(self, world):
        self.path = world.geopackage("mapserver")
        source = from_geopackage(self.path)
        self.gml = Mapserver(world.path("mapserver", "gml", ""), source)
        self.json = Mapserver(world.path("mapserver", "json", ""), source, geojson=True)
        self.capped = Mapserver(world.path("mapserver", "capped", ""), source, maxfeatures=300)
        self.api = Mapserver(world.path("mapserver", "api", ""), source, projection=DEGREES)
        self.world = world

    def stop(self):
        for server in (self.gml, self.json, self.capped, self.api):
            server.stop()

    def change(self, layer):
        return (
            lambda features: data.write_geopackage(self.path, {layer: features}),
            lambda: data.write_geopackage(self.path, {layer: self.world.layers[layer]}),
        )


def gml2(layer):
    return lambda s, w, n: fetch(w, n, layer, s.gml.wfs, WFS, GML)


def gml1(layer):
    return lambda s, w, n: fetch(w, n, layer, s.gml.wfs, (*WFS, "--wfs-version", "1.1.0"), GML)


def twice(layer):
    def go(s, w, n):
        change, restore = s.change(layer)
        return run_twice(w, n, layer, s.gml.wfs, "geoserver-wfs", GML, change, restore)

    return go


def synced(layer):
    def go(s, w, n):
        change, restore = s.change(layer)
        sync_changes(w, n, layer, s.gml.wfs, "geoserver-wfs", GML, change, restore)

    return go


def api(s, w, n):
    lenient = Leniency(blank=True, zone=True, places=6, null_geometry=False, digits=13, loose=True, up=True)
    return fetch(w, n, "points_3035", s.api.ogc, ("--profile", "ogcapi"), lenient, epsg=4326)


CASES = {
    **{f"wfs2.gml.{layer}": gml2(layer) for layer in ("points_4326", "polygons_25832", "polygons_31468")},
    **{f"wfs1.gml.{layer}": gml1(layer) for layer in ("points_4326", "polygons_31468")},
    "wfs2.json": lambda s, w, n: fetch(w, n, "polygons_25832", s.json.wfs, WFS, JSON),
    "wfs1.capped": lambda s, w, n: fetch(
        w, n, "points_2154", s.capped.wfs, (*WFS, "--wfs-version", "1.1.0"), GML),
    "ogcapi": api,
    "run_twice": twice("points_3035"),
    "sync": synced("points_3035"),
}
SLOW = {
    **{f"wfs2.gml.{layer}": gml2(layer) for layer in ("points_2154", "points_3035")},
    "wfs2.small_pages": lambda s, w, n: fetch(w, n, "points_2154", s.gml.wfs, (*WFS, "--page-size", "700"), GML),
    "wfs2.capped": lambda s, w, n: fetch(w, n, "points_2154", s.capped.wfs, WFS, GML),
    "pace": lambda s, w, n: pace(
        w, n, (s.gml.wfs, *WFS, "--layer", "points_2154"), ("WFS:" + s.gml.wfs, "ms:points_2154")),
    **{f"wfs1.gml.{layer}": gml1(layer) for layer in ("polygons_25832", "points_2154", "points_3035")},
    "asked_crs": lambda s, w, n: fetch(
        w, n, "polygons_25832", s.gml.wfs, (*WFS, "--crs", "EPSG:4326"),
        Leniency(blank=True, zone=True, places=6, null_geometry=False, digits=13, metres=0.2), epsg=4326),
    "geojson_output": lambda s, w, n: fetch(
        w, n, "points_2154", s.gml.wfs, WFS,
        Leniency(blank=True, zone=True, places=6, null_geometry=False, digits=13, metres=0.2), output="out.geojson"),
    "run_twice.polygons": twice("polygons_31468"),
    "no_such_layer": lambda s, w, n: refused(w, n, "none", s.gml.wfs, WFS, "points_4326"),
}
