"""Grids of NTv2 against PROJ: a grid made here, with one finer part inside it, under the name of a real one.

`check_grids.py --write FILE` only writes the grid; tests/data/grids holds it.
"""
import json, pathlib, random, struct, subprocess, sys

NAME = "OSTN15_NTv2_OSGBtoETRS.gsb"

def record(name, value):
    return name.encode().ljust(8) + value.ljust(8, b"\0")

def part(name, parent, south, north, west, east, step):
    columns, rows = round((east - west) / step) + 1, round((north - south) / step) + 1
    out = record("SUB_NAME", name.encode().ljust(8)) + record("PARENT", parent.encode().ljust(8)) + record("CREATED", b"20261115") + record("UPDATED", b"20261115")
    for key, value in (("S_LAT", south), ("N_LAT", north), ("E_LONG", -east), ("W_LONG", -west), ("LAT_INC", step), ("LONG_INC", step)):
        out += record(key, struct.pack("<d", value * 3600))
    out += record("GS_COUNT", struct.pack("<i", columns * rows))
    for row in range(rows):
        for column in range(columns):
            lat, lon = south + row * step, east - column * step
            # Of the size of the real shifts, a curved surface.
            out += struct.pack("<ffff", 1.5 + 0.2 * (lat - 55) - 0.01 * lon * lat, 4.5 + 0.3 * lon + 0.002 * (lat - 55) ** 3, 0, 0)
    return out

def grid():
    head = record("NUM_OREC", struct.pack("<i", 11)) + record("NUM_SREC", struct.pack("<i", 11)) + record("NUM_FILE", struct.pack("<i", 2)) + record("GS_TYPE", b"SECONDS ")
    head += record("VERSION", b"MADE UP ") + record("SYSTEM_F", b"OSGB36  ") + record("SYSTEM_T", b"ETRS89  ")
    for key, value in (("MAJOR_F", 6377563.396), ("MINOR_F", 6356256.909), ("MAJOR_T", 6378137.0), ("MINOR_T", 6356752.314)):
        head += record(key, struct.pack("<d", value))
    return head + part("ROOT", "NONE", 49, 61, -9, 2, 1) + part("LONDON", "ROOT", 51, 52, -1, 1, 0.25) + b"END     " + bytes(8)

if sys.argv[1] == "--write":
    pathlib.Path(sys.argv[2]).write_bytes(grid())
    sys.exit()

import pyproj
folder = pathlib.Path(sys.argv[1]).resolve() / "grids"
folder.mkdir(parents=True, exist_ok=True)
(folder / NAME).write_bytes(grid())
chance = random.Random(7)
points = [(chance.uniform(-8, 1.9), chance.uniform(49.5, 60.9)) for _ in range(2000)] + [(chance.uniform(-0.99, 0.99), chance.uniform(51.01, 51.99)) for _ in range(500)]
shift = pyproj.Transformer.from_pipeline(
    f"+proj=pipeline +step +proj=unitconvert +xy_in=deg +xy_out=rad +step +inv +proj=hgridshift +grids={folder / NAME} "
    "+step +proj=tmerc +lat_0=49 +lon_0=-2 +k=0.9996012717 +x_0=400000 +y_0=-100000 +ellps=airy")
want = [shift.transform(lon, lat) for lon, lat in points]
source, there, back = (folder / name for name in ("points.geojsonl", "grid.esrijson", "back.geojsonl"))
source.write_text("".join(json.dumps({"type": "Feature", "properties": {}, "geometry": {"type": "Point", "coordinates": p}}) + "\n" for p in points))
for old in (there, back): old.unlink(missing_ok=True)
tool = ["cargo", "run", "-q", "-p", "tidegate", "--", "convert"]
said = json.loads(subprocess.run([*tool, source, there, "--to-crs", "EPSG:27700", "--grids", folder, "--format", "json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
operation = said["layers"][0]["operation"]
assert operation["grids"] == [str(folder / NAME)] and operation["accuracy_m"] == 1 and not operation["missing_grids"], operation
got = [(f["geometry"]["x"], f["geometry"]["y"]) for f in json.loads(there.read_text())["features"]]
assert len(got) == len(want), len(got)
worst = max(abs(a - b) for p, q in zip(got, want) for a, b in zip(p, q))
subprocess.run([*tool, there, back, "--to-crs", "EPSG:4326", "--grids", folder], check=True, stderr=subprocess.DEVNULL)
home = [json.loads(line)["geometry"]["coordinates"] for line in back.read_text().splitlines()]
returned = max(abs(a - b) for p, q in zip(home, points) for a, b in zip(p, q)) * 111320
print(f"{len(points)} points over {NAME}: {worst:.2e} m from PROJ there, {returned:.2e} m back")
assert worst < 1e-4 and returned < 1e-4
