"""Writes what PROJ knows about every EPSG projected and geographic system, for crs_table to verify.

One line per system: code, kind, axis order, deprecated, name, area of use, stated accuracy of the
operation from WGS 84 (-1: ballpark), a PROJ string with the datum shift of that operation, and
nine points transformed by PROJ.

    target/venv/bin/python crates/geo/tools/crs_candidates.py target/crs_candidates.tsv
"""
import re, sys, warnings
import pyproj
from pyproj.aoi import AreaOfInterest
from pyproj.transformer import TransformerGroup

warnings.filterwarnings("ignore")
pyproj.network.set_network_enabled(False)
WGS84 = pyproj.CRS.from_epsg(4326)

def numbers(step):
    return {k: v for k, v in re.findall(r"(\w+)=([^ ]+)", step)}

def towgs84(definition):
    """The parameters of the one Helmert step, None if the datum is taken over as it is; raises if it is another thing."""
    steps = [s for s in definition.split(" step ") if re.search(r"proj=(helmert|molobadekas|hgridshift|gridshift|geogoffset|affine|deformation|vgridshift|xyzgridshift)", s)]
    if not steps:
        # A shift by nothing between two ellipsoids still goes over geocentric coordinates.
        return [0, 0, 0] if "proj=cart" in definition else None
    if len(steps) > 1 or "helmert" not in steps[0]:
        raise ValueError("another operation")
    step, p = steps[0], numbers(steps[0])
    if any(k in p for k in ("dx", "dy", "dz", "t_epoch", "drx", "ds")):
        raise ValueError("time-dependent")
    sign = 1 if re.search(r"(^| )inv( |$)", step) else -1
    turn = -1 if p.get("convention") == "coordinate_frame" else 1
    f = lambda k: float(p.get(k, 0))
    # The inverse of small rotations is their negative, to the accuracy that is verified.
    return [sign * f("x"), sign * f("y"), sign * f("z"), sign * turn * f("rx"), sign * turn * f("ry"), sign * turn * f("rz"), sign * f("s")]

def plain(proj4):
    proj4 = proj4.replace(" +type=crs", "").replace(" +no_defs", "")
    for datum, ellps in (("WGS84", "WGS84"), ("NAD83", "GRS80"), ("NAD27", "clrk66"), ("OSGB36", "airy"), ("GGRS87", "GRS80"), ("potsdam", "bessel"), ("carthage", "clrk80ign"), ("hermannskogel", "bessel"), ("ire65", "mod_airy"), ("nzgd49", "intl")):
        proj4 = proj4.replace(f"+datum={datum}", f"+ellps={ellps}")
    return re.sub(r" \+(towgs84|nadgrids)=[^ ]+", "", proj4)

def main(path):
    infos = [i for t in ("PROJECTED_CRS", "GEOGRAPHIC_2D_CRS") for i in pyproj.database.query_crs_info(auth_name="EPSG", pj_types=[getattr(pyproj.enums.PJType, t)], allow_deprecated=True)]
    with open(path, "w") as out:
        for n, info in enumerate(infos):
            try:
                crs = pyproj.CRS.from_epsg(int(info.code))
                a = info.area_of_use
                w, s, e, north = a.bounds if a else (-180, -90, 180, 90)
                e2 = e if e >= w else e + 360
                cx, cy = (w + e2) / 2, (s + north) / 2
                cx = cx - 360 if cx > 180 else cx
                group = TransformerGroup(WGS84, crs, always_xy=True, area_of_interest=AreaOfInterest(cx, cy, cx, cy))
                if not group.transformers:
                    raise ValueError("no operation")
                t = group.transformers[0]
                shift = towgs84(t.definition)
                ballpark = "Ballpark" in t.description
                accuracy = -1 if ballpark else t.accuracy
                proj4 = plain(crs.to_proj4())
                if shift is not None:
                    proj4 += " +towgs84=" + ",".join(f"{v + 0:.12g}" for v in shift)
                points = []
                for fx in (0.1, 0.5, 0.9):
                    for fy in (0.1, 0.5, 0.9):
                        lon, lat = w + (e2 - w) * fx, s + (north - s) * fy
                        lon = lon - 360 if lon > 180 else lon
                        x, y = t.transform(lon, lat)
                        points.append(f"{lon!r},{lat!r},{x!r},{y!r}")
                axes = [x.direction for x in crs.axis_info]
                swapped = int(bool(axes) and axes[0] in ("north", "south"))
                kind = "G" if crs.is_geographic else "P"
                out.write("\t".join([info.code, kind, str(swapped), str(int(info.deprecated)), info.name, f"{w},{s},{e},{north}", f"{accuracy:g}", t.description.replace("\t", " "), proj4, ";".join(points)]) + "\n")
            except Exception as problem:
                out.write("\t".join([info.code, "-", "0", "0", info.name, "", "", "", str(problem).replace("\n", " ").replace("\t", " ")[:80], ""]) + "\n")
            if n % 500 == 0:
                out.flush()

main(sys.argv[1])
