"""Writes which systems of ESRI are an EPSG one under another number: number, EPSG code and name.

The same definition on the same geographic system counts, as does what PROJ's database lists as the
successor; of those, what PROJ projects to other places is left out. ESRI:102113 is Web Mercator as it
was written before it had a code.

    target/venv/bin/python crates/geo/tools/crs_same.py target/crs_same.tsv
"""
import pathlib, sqlite3, sys, warnings
import pyproj
from pyproj.enums import PJType

warnings.filterwarnings("ignore")
db = sqlite3.connect(pathlib.Path(pyproj.datadir.get_data_dir()) / "proj.db")
KINDS = [PJType.PROJECTED_CRS, PJType.GEOGRAPHIC_2D_CRS]

def plain(crs):
    """The PROJ string; nothing for the few that have none."""
    try:
        return crs.to_proj4()
    except pyproj.exceptions.CRSError:
        return None

def base(crs):
    found = crs.geodetic_crs if crs.is_projected else crs
    return tuple(found.to_authority(min_confidence=100) or (found.name,))

def agree(a, b):
    """Whether both project their area to the same places, each from its own geographic system."""
    bounds = a.area_of_use or b.area_of_use
    if a.is_geographic or not bounds:
        return a.is_geographic and a.ellipsoid == b.ellipsoid
    there = [pyproj.Proj(c)(*zip(*[(bounds.west + (bounds.east - bounds.west) * f, bounds.south + (bounds.north - bounds.south) * g) for f in (0.2, 0.8) for g in (0.2, 0.8)])) for c in (a, b)]
    return all(abs(p - q) < 0.001 for row, other in zip(*there) for p, q in zip(row, other))

by_definition = {}
for info in pyproj.database.query_crs_info(auth_name="EPSG", pj_types=KINDS, allow_deprecated=False):
    crs = pyproj.CRS.from_epsg(int(info.code))
    if crs.is_projected and plain(crs):
        by_definition.setdefault((plain(crs), base(crs)), int(info.code))
successor = dict(db.execute("SELECT deprecated_code, replacement_code FROM deprecation WHERE deprecated_auth_name = 'ESRI' AND replacement_auth_name = 'EPSG' AND table_name IN ('projected_crs', 'geodetic_crs')"))
with open(sys.argv[1], "w") as out:
    for info in pyproj.database.query_crs_info(auth_name="ESRI", pj_types=KINDS, allow_deprecated=True):
        crs = pyproj.CRS.from_authority("ESRI", info.code)
        code = 3857 if info.code == "102113" else successor.get(int(info.code))
        if code is None and crs.is_projected:
            code = by_definition.get((plain(crs), base(crs)))
        if code is not None and (info.code == "102113" or agree(crs, pyproj.CRS.from_epsg(int(code)))):
            out.write(f"{info.code}\t{code}\t{info.name}\n")
        elif code is not None:
            print("not the same:", info.code, info.name, code, file=sys.stderr)
