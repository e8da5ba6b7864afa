"""Writes data/crs_text.bin: how PROJ spells every projected, geographic and geocentric system of EPSG and ESRI as
PROJJSON (for GeoParquet) and as ESRI's well-known text (for .prj files). ESRI's systems that have an EPSG code
are left out.

The file: the number of systems, then code and block of each, then the blocks. A block is 64 systems,
deflated; within it each system is its PROJJSON, a zero byte, its ESRI text, a zero byte. Numbers are
32 bits, little-endian; a block is preceded by its length.

    target/venv/bin/python crates/geo/tools/crs_text.py target/crs_same.tsv crates/geo/data/crs_text.bin
"""
import json, struct, sys, warnings, zlib
import pyproj

warnings.filterwarnings("ignore")
BLOCK = 64
DROP = ("$schema", "scope", "area", "bbox", "usages", "remarks", "deprecated")

def strip(value):
    if isinstance(value, dict):
        return {k: strip(v) for k, v in value.items() if k not in DROP}
    return [strip(v) for v in value] if isinstance(value, list) else value

rows = []
kinds = ("PROJECTED_CRS", "GEOGRAPHIC_2D_CRS")
known = {int(line.split("\t")[0]) for line in open(sys.argv[1])}
heights = ("GEOGRAPHIC_3D_CRS", "GEOCENTRIC_CRS")
infos = [i for a in ("EPSG", "ESRI") for i in pyproj.database.query_crs_info(auth_name=a, allow_deprecated=True)]
for code, authority in sorted({(int(i.code), i.auth_name) for i in infos if i.type.name in kinds or i.auth_name == "EPSG" and i.type.name in heights}):
    if authority == "ESRI" and code in known:
        continue
    crs = pyproj.CRS.from_authority(authority, code)
    text = json.dumps(strip(json.loads(crs.to_json())), separators=(",", ":"), ensure_ascii=False)
    try:
        esri = crs.to_wkt("WKT1_ESRI") or ""
    except pyproj.exceptions.CRSError:
        esri = ""
    rows.append((code, text, esri))
with open(sys.argv[2], "wb") as out:
    out.write(struct.pack("<I", len(rows)))
    for at, (code, _, _) in enumerate(rows):
        out.write(struct.pack("<II", code, at // BLOCK))
    for start in range(0, len(rows), BLOCK):
        plain = "".join(f"{text}\0{esri}\0" for _, text, esri in rows[start : start + BLOCK])
        packed = zlib.compress(plain.encode(), 9)
        out.write(struct.pack("<I", len(packed)) + packed)
print(len(rows), "systems")
