"""Validity and reprojection beside GEOS and PROJ: user time of one core over 200,000 polygons of 25 vertices on average.

`bench_speed.py FOLDER [SYSTEM…]`. Ours is `speed WHAT FILE 6` less `speed WHAT FILE 1`, over five; it reads and copies
well-known binary while it does so. Theirs is one call over an array of geometries or of coordinates. Medians of three.
"""
import math, os, pathlib, random, resource, statistics, subprocess, sys
import numpy as np, pyproj, shapely

GERMANY, BRITAIN, SWITZERLAND, FRANCE, LOW, BOHEMIA, PLAINS = (7, 48, 13, 54), (-5, 50.5, 1, 55), (6.5, 46, 10, 47.5), (0, 44, 6, 49), (3.5, 51.2, 5.8, 51.45), (13, 49, 18, 50.5), (-104, 36, -94, 44)
SYSTEMS = {
    "EPSG:3857": ("Web Mercator", GERMANY), "EPSG:25832": ("UTM", GERMANY), "EPSG:3035": ("Lambert, azimuthal", GERMANY),
    "EPSG:5070": ("Albers", PLAINS), "EPSG:2154": ("Lambert, conic", FRANCE), "EPSG:4314": ("only a shift of datum", GERMANY),
    "EPSG:31467": ("Gauss-Krüger, with a shift of datum", GERMANY), "EPSG:27700": ("transverse Mercator, with a shift of datum", BRITAIN),
    "EPSG:31370": ("Lambert, conic, with a shift of datum", LOW), "EPSG:28992": ("stereographic, with a shift of datum", LOW),
    "EPSG:2056": ("oblique Mercator, with a shift of datum", SWITZERLAND), "EPSG:5514": ("Krovak, with a shift of datum", BOHEMIA),
}
folder = pathlib.Path(sys.argv[1])

def polygons(area):
    """A file of polygons within an area, and all their positions."""
    west, south, east, north = area
    file = folder / f"speed_{west}_{south}.geojsonl"
    rng, positions, rings = random.Random(7), [], []
    for _ in range(200_000):
        x, y, n = rng.uniform(west, east), rng.uniform(south, north), rng.randint(8, 40)
        ring = [[round(x + r * math.cos(a), 7), round(y + r * math.sin(a), 7)] for k in range(n) for a, r in [(2 * math.pi * k / n, rng.uniform(0.0005, 0.001))]]
        rings.append(ring + ring[:1])
        positions += rings[-1]
    if not file.exists():
        with open(file, "w") as out:
            out.writelines(f'{{"type":"Feature","properties":{{}},"geometry":{{"type":"Polygon","coordinates":[{ring}]}}}}\n' for ring in rings)
    return file, rings, np.array(positions)

subprocess.run(["cargo", "build", "-q", "--release", "-p", "tidegate-geo", "--example", "speed"], check=True)
tool = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "release/examples/speed"

def used(who):
    return resource.getrusage(who).ru_utime

def ours(file, *what):
    def once(times):
        before = used(resource.RUSAGE_CHILDREN)
        subprocess.run([tool, *what, file, str(times)], check=True)
        return used(resource.RUSAGE_CHILDREN) - before
    return statistics.median((once(6) - once(1)) / 5 for _ in range(3))

def theirs(work):
    def once():
        before = used(resource.RUSAGE_SELF)
        work()
        return used(resource.RUSAGE_SELF) - before
    return statistics.median(once() for _ in range(3))

def row(name, a, b):
    print(f"| {name} | {a:.2f} s | {b:.2f} s | {b / a:.2f} × |", flush=True)

print(f"GEOS {shapely.geos_version_string}, PROJ {pyproj.proj_version_str}; load {os.getloadavg()[0]:.1f}")
print("| job | Tidegate | peer | ratio |\n|---|--:|--:|--:|")
last = None
for system in sys.argv[2:] or SYSTEMS:
    name, area = SYSTEMS[system]
    if area != last:
        last, (file, rings, positions) = area, polygons(area)
    if system == "EPSG:3857":
        geometries = shapely.polygons([shapely.linearrings(ring) for ring in rings])
        row("validity", ours(file, "validity"), theirs(lambda: shapely.is_valid(geometries)))
    there = pyproj.Transformer.from_crs("OGC:CRS84", system, always_xy=True)
    x, y = positions[:, 0].copy(), positions[:, 1].copy()
    row(f"to {system} ({name})", ours(file, system), theirs(lambda: there.transform(x, y)))
    x, y = there.transform(x, y)
    row("and back", ours(file, system, "back"), theirs(lambda: there.transform(x, y, direction="INVERSE")))
