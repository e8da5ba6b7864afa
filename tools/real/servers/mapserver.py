"""MapServer: WFS 1.1 and 2.0 and OGC API Features over a GeoPackage."""

import os
import shutil

from data import LAYERS
from servers.fastcgi import Gateway

LAYER = """
  LAYER
    NAME "{name}"
    TYPE {kind}
    STATUS ON
    {data}
    TEMPLATE "none"
    METADATA
      "ows_title" "{name}"
      "ows_extent" "{west} {south} {east} {north}"
      "ows_srs" "EPSG:{epsg} EPSG:4326 EPSG:3857"
      "ows_include_items" "all"
      "gml_include_items" "all"
      "gml_featureid" "id"
      "ows_featureid" "id"
      "gml_types" "auto"
      "gml_geometries" "geom"
      "gml_geom_type" "{kind_lower}"
      "wfs_getfeature_formatlist" "{formats}"
      "oga_description" "{name}"
    END
    PROJECTION "init=epsg:{epsg}" END
  END
"""

# A projection of the map is the default of every layer for WFS; OGC API Features serves nothing
# without one.
MAP = """
MAP
  NAME "real"
  SIZE 100 100
  EXTENT -180 -90 180 90
  {projection}
  WEB
    METADATA
      "ows_title" "real"
      "ows_onlineresource" "{url}/?map={map}"
      "oga_onlineresource" "{url}/real/ogcapi"
      "ows_enable_request" "*"
      "wfs_namespace_prefix" "ms"
      {metadata}
    END
  END
  OUTPUTFORMAT
    NAME "geojson"
    DRIVER "OGR/GEOJSON"
    MIMETYPE "application/json; subtype=geojson"
    FORMATOPTION "STORAGE=stream"
    FORMATOPTION "FORM=SIMPLE"
    FORMATOPTION "USE_FEATUREID=true"
  END
  {layers}
END
"""


def from_geopackage(path):
    return lambda name, epsg: f'CONNECTIONTYPE OGR CONNECTION "{path}" DATA "{name}"'


def from_postgis(database):
    """Pages become LIMIT and OFFSET here, which count rows whose geometry is NULL."""
    return lambda name, epsg: (
        f'CONNECTIONTYPE POSTGIS CONNECTION "{database.words}" PROCESSING "CLOSE_CONNECTION=DEFER"'
        f' DATA "geom FROM {name} USING UNIQUE id USING SRID={epsg}"'
    )


#: The projection of a map.
DEGREES = 'PROJECTION "init=epsg:4326" END'


class Mapserver:
    """`geojson` offers GeoJSON beside GML; `maxfeatures` caps an answer."""

    def __init__(self, directory, data, geojson=False, maxfeatures=None, projection=""):
        os.makedirs(directory, exist_ok=True)
        self.map = os.path.join(directory, "real.map")
        binary = shutil.which("mapserv") or "/usr/lib/cgi-bin/mapserv"
        conf = os.path.join(directory, "mapserver.conf")
        templates = next((d for d in ("/usr/share/mapserver/ogcapi/templates/html-bootstrap4",) if os.path.isdir(d)), "")
        with open(conf, "w", encoding="utf-8") as file:
            file.write(
                f'CONFIG\n  ENV\n    MS_MAP_PATTERN "."\n    OGCAPI_HTML_TEMPLATE_DIRECTORY "{templates}/"\n  END\n'
                f'  MAPS\n    real "{self.map}"\n  END\nEND\n'
            )
        env = {"MAPSERVER_CONFIG_FILE": conf, "MS_MAPFILE": self.map, "MS_ERRORFILE": "stderr"}
        self.gateway = Gateway([binary], directory, env)
        self.log = self.gateway.log
        formats = "geojson" if geojson else ""
        layers = "".join(
            LAYER.format(name=n, epsg=e, kind=k.upper(), kind_lower=k.lower(), west=w, south=s, east=ea, north=no,
                         data=data(n, e), formats=formats)
            for n, (e, k, w, s, ea, no) in LAYERS.items()
        )
        metadata = f'"wfs_maxfeatures" "{maxfeatures}"' if maxfeatures else ""
        with open(self.map, "w", encoding="utf-8") as file:
            file.write(MAP.format(url=self.gateway.url, map=self.map, layers=layers, metadata=metadata, projection=projection))
        self.wfs = f"{self.gateway.url}/wfs"
        self.ogc = f"{self.gateway.url}/real/ogcapi"

    def stop(self):
        self.gateway.stop()
