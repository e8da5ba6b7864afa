"""MapServer over PostGIS: pages become LIMIT and OFFSET.

OGC API Features of MapServer 8.0 ignores `offset` over PostGIS and links to itself for ever: that
must be refused.
"""

import data
from check import fetch, refused, sync_changes
from compare import Leniency
from servers.mapserver import DEGREES, Mapserver, from_postgis

QUICK = False
POSTGRES = True
APT = ("cgi-mapserver", "postgresql-15-postgis-3")
PROGRAMS = ("mapserv",)
PIP = ("pyproj", "psycopg[binary]")
GML = Leniency(blank=True, zone=True, places=6, null_geometry=False, digits=13)
WFS = ("--profile", "geoserver-wfs")


class Suite:
    def __init__(self, world):
        source = from_postgis(world.database)
        self.server = Mapserver(world.path("mapserver_postgis", "wfs", ""), source)
        self.api = Mapserver(world.path("mapserver_postgis", "api", ""), source, projection=DEGREES)

    def stop(self):
        self.server.stop()
        self.api.stop()


def gml(layer, *more):
    return lambda s, w, n: fetch(w, n, layer, s.server.wfs, (*WFS, *more), GML)


def synced(version):
    def go(s, w, n):
        layer = "polygons_25832"
        change = lambda features: data.write_postgis(w.database.url, {layer: features})
        restore = lambda: change(w.layers[layer])
        # It declares `flag` as an integer and sends words, so the fields must come from all pages.
        source = {"paging": {"version": version}, "spool": True}
        sync_changes(w, n, layer, s.server.wfs, "geoserver-wfs", GML, change, restore, source)

    return go


CASES = {
    **{f"wfs2.{layer}": gml(layer) for layer in data.LAYERS},
    "wfs1.points_4326": gml("points_4326", "--wfs-version", "1.1.0"),
    "wfs2.sync": synced("2.0.0"),
    "wfs1.sync": synced("1.1.0"),
    "wfs2.small_pages": gml("points_2154", "--page-size", "700"),
    "ogcapi.loop": lambda s, w, n: refused(
        w, n, "points_2154", s.api.ogc, ("--profile", "ogcapi"), "PAGE_LOOP"),
}
