"""QGIS Server: WFS 1.1 and OGC API Features over a GeoPackage, from a project file written here."""

import os
import shutil
from xml.sax.saxutils import escape

from data import LAYERS
from servers.fastcgi import Gateway



def system(epsg):
    """A reference system as a project holds it; by its code alone QGIS does not know it."""
    from pyproj import CRS

    crs = CRS.from_epsg(epsg)
    return (
        f'<spatialrefsys nativeFormat="Wkt"><wkt>{escape(crs.to_wkt())}</wkt><srid>{epsg}</srid>'
        f"<authid>EPSG:{epsg}</authid><description>{escape(crs.name)}</description>"
        f"<geographicflag>{str(crs.is_geographic).lower()}</geographicflag></spatialrefsys>"
    )


LAYER = """<maplayer type="vector" geometry="{kind}">
  <id>{name}</id><datasource>{source}</datasource><layername>{name}</layername><shortname>{name}</shortname>
  <srs>{system}</srs><provider encoding="UTF-8">{provider}</provider>
  <flags><Identifiable>1</Identifiable><Removable>1</Removable><Searchable>1</Searchable></flags>
  <renderer-v2 type="nullSymbol"/>
</maplayer>"""
PROJECT = """<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>
<qgis version="3.22.0" projectname="real">
  <title>real</title>
  <projectCrs>{system}</projectCrs>
  <layer-tree-group>{tree}</layer-tree-group>
  <projectlayers>{layers}</projectlayers>
  <properties>
    <WFSLayers type="QStringList">{values}</WFSLayers>
    <WFSLayersPrecision>{precision}</WFSLayersPrecision>
  </properties>
</qgis>
"""


class Qgis:
    """`source` gives the provider and the datasource of a layer."""

    def __init__(self, directory, source):
        os.makedirs(directory, exist_ok=True)
        project = os.path.join(directory, "real.qgs")
        layers, tree, values, precision = "", "", "", ""
        for name, (epsg, kind, *_) in LAYERS.items():
            provider, where = source(name, epsg, kind)
            layers += LAYER.format(kind=kind, name=name, source=escape(where), provider=provider, system=system(epsg))
            tree += f'<layer-tree-layer id="{name}" name="{name}" checked="Qt::Checked"/>'
            values += f"<value>{name}</value>"
            precision += f'<{name} type="int">8</{name}>'
        with open(project, "w", encoding="utf-8") as file:
            file.write(PROJECT.format(
                system=system(4326), tree=tree, layers=layers, values=values, precision=precision))
        env = {"QGIS_PROJECT_FILE": project, "QT_QPA_PLATFORM": "offscreen", "HOME": directory,
               "QGIS_SERVER_LOG_STDERR": "1", "QGIS_SERVER_LOG_LEVEL": "1", "XDG_RUNTIME_DIR": directory,
               # Each worker would keep the project, and with it what it knew of the file.
               "QGIS_SERVER_PROJECT_CACHE_STRATEGY": "periodic"}
        binary = shutil.which("qgis_mapserv.fcgi", path="/usr/lib/cgi-bin:" + os.environ["PATH"])
        self.gateway = Gateway([binary], directory, env)
        self.log = self.gateway.log
        self.wfs = f"{self.gateway.url}/ows"
        self.ogc = f"{self.gateway.url}/wfs3"

    def stop(self):
        self.gateway.stop()


def from_geopackage(path):
    return lambda name, epsg, kind: ("ogr", f"{path}|layername={name}")
