"""Compares the transformations with GDAL, pixel by pixel.

    transform.py TRANSFORM [SIDE]

TRANSFORM is the built example `transform` of the crate raster, SIDE the width and height of the
pictures (900). GDAL is that of the installed rasterio: its library exports what the commands
gdalwarp and gdal_rasterize do. Both get the same picture; GDAL computes positions exactly
(-et 0) and all in one chunk (-wm), because the width of its kernels depends on its chunks.

Mode is not compared: until 3.10 GDAL counts pixels and not their areas, and since 3.11 a value that comes
later overtakes only when it comes twice.

One line is printed per case: pixels that have a value in either, those that are equal, those within one,
and the largest difference. The exit code is 1 if one case misses what is promised.
"""

import ctypes
import glob
import json
import os
import subprocess
import sys
import tempfile
from fractions import Fraction

import numpy as np
import rasterio
from rasterio.transform import from_origin

LIB = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(rasterio.__file__), "..", "rasterio.libs", "libgdal*"))[0])
for name, result in [
    ("GDALOpenEx", ctypes.c_void_p),
    ("GDALWarp", ctypes.c_void_p),
    ("GDALWarpAppOptionsNew", ctypes.c_void_p),
    ("GDALRasterize", ctypes.c_void_p),
    ("GDALRasterizeOptionsNew", ctypes.c_void_p),
]:
    getattr(LIB, name).restype = result
LIB.GDALAllRegister()


def words(all):
    array = (ctypes.c_char_p * (len(all) + 1))()
    array[:-1] = [str(word).encode() for word in all]
    return array


def gdal_open(path, vector=False):
    flags = 0x04 if vector else 0x02
    dataset = LIB.GDALOpenEx(path.encode(), flags, None, None, None)
    assert dataset, path
    return ctypes.c_void_p(dataset)


def close(*all):
    for one in all:
        LIB.GDALClose(one)


def gdalwarp(source, target, options):
    made = ctypes.c_void_p(LIB.GDALWarpAppOptionsNew(words(options), None))
    dataset = gdal_open(source)
    sources = (ctypes.c_void_p * 1)(dataset)
    failed = ctypes.c_int(0)
    result = LIB.GDALWarp(target.encode(), None, 1, sources, made, ctypes.byref(failed))
    assert result and not failed.value, options
    close(ctypes.c_void_p(result), dataset)


def gdal_rasterize(source, target, options):
    made = ctypes.c_void_p(LIB.GDALRasterizeOptionsNew(words(options), None))
    dataset = gdal_open(source, vector=True)
    failed = ctypes.c_int(0)
    result = LIB.GDALRasterize(target.encode(), None, dataset, made, ctypes.byref(failed))
    assert result and not failed.value, options
    close(ctypes.c_void_p(result), dataset)


def ours(program, *args):
    out = subprocess.run([program, *map(str, args)], check=True, capture_output=True, text=True).stdout
    head = json.loads(out)
    values = np.fromfile(args[2], dtype=head["sample"])
    return head, values.reshape(head["bands"], head["height"], head["width"])


def picture(path, side, kind, nodata, seed=1):
    """Smooth hills with noise, and with nodata a hole, a stripe and a ragged border."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side, 0:side]
    hills = 900 + 600 * np.sin(x / 37) * np.cos(y / 23) + 200 * np.sin((x + y) / 5)
    bands = np.stack([hills + rng.normal(0, 60, (side, side)) + 100 * band for band in range(3)])
    limit = 255 if kind == "uint8" else 4000
    bands = np.clip(bands / (8 if kind == "uint8" else 1), 1, limit)
    bands = bands.astype(kind) if kind.startswith("float") else np.rint(bands).astype(kind)
    if nodata is not None:
        bands[:, side // 3 : side // 2, side // 4 : side // 3] = nodata
        bands[:, (x + 2 * y < side // 3)] = nodata
        bands[1, :: 97, :] = nodata
        bands[:, rng.random((side, side)) < 0.01] = nodata
    profile = dict(driver="GTiff", width=side, height=side, count=3, dtype=kind, crs="EPSG:32633",
                   transform=from_origin(412340.0, 5345670.0, 10.0, 10.0), tiled=True, compress="deflate")
    if nodata is not None:
        profile["nodata"] = nodata
    with rasterio.open(path, "w", **profile) as out:
        out.write(bands)


failures = 0


def judge(name, a, b, equal_min, one_min, hole=None):
    """Compares two arrays; `equal_min` of all pixels must be equal, `one_min` within one."""
    global failures
    if a.shape != b.shape:
        print(f"{name:44} shapes differ: {a.shape} {b.shape}")
        failures += 1
        return
    counted = np.ones(a.shape, bool) if hole is None else (a != hole) | (b != hole)
    same = (a == b) | ~counted
    near = np.abs(a.astype("f8") - b.astype("f8")) <= 1.0
    if hole is not None:
        near &= (a == hole) == (b == hole)
    total = int(counted.sum())
    equal, one = int((same & counted).sum()), int(((near | same) & counted).sum())
    worst = float(np.abs(a.astype("f8") - b.astype("f8"))[counted].max()) if total else 0.0
    good = equal >= equal_min * total and one >= one_min * total
    failures += not good
    print(f"{name:44} {total:9} px  equal {equal / total:9.5%}  within one {one / total:9.5%}"
          f"  differ {total - equal:7}  worst {worst:8.2f}  {'ok' if good else 'MISSED'}", flush=True)


def box_of(raster):
    left, bottom, right, top = raster.bounds
    return f"extent={left!r},{bottom!r},{right!r},{top!r}"


def without_edge(values, head, theirs):
    """Our pixels on GDAL's grid, and whether the others are empty: since 3.8 it leaves out columns and rows at the
    edge of -tap that have no value. The width of kernels follows the size of the grid, so values are compared on one
    grid; this is for which pixels have a value."""
    at = head["transform"]
    left, top = round((theirs.transform.c - at[0]) / at[1]), round((theirs.transform.f - at[3]) / at[5])
    inside = (slice(None), slice(top, top + theirs.height), slice(left, left + theirs.width))
    rest = values.copy()
    rest[inside] = 0
    return values[inside], not rest.any()


def warps(program, folder, side):
    for kind, nodata in [("uint16", 0), ("uint16", None), ("uint8", 255), ("float32", -9999)]:
        source = f"{folder}/{kind}{nodata}.tif"
        picture(source, side, kind, nodata)
        for epsg in [3857, 4326, 32632, 3035]:
            for method, short in [("nearest", "near"), ("bilinear",) * 2, ("cubic",) * 2, ("average",) * 2]:
                if kind != "uint16" and method == "average":
                    continue
                target = f"{folder}/gdal.tif"
                options = ["-t_srs", f"EPSG:{epsg}", "-r", short, "-et", "0", "-wm", "2000", "-overwrite"]
                gdalwarp(source, target, options)
                head, values = ours(program, "warp", source, f"{folder}/ours.raw", epsg, method, 0)
                with rasterio.open(target) as theirs:
                    wanted, transform = theirs.read(), theirs.transform.to_gdal()
                name = f"warp {kind} nodata {nodata} {epsg} {method}"
                off = max(abs(p - q) / abs(transform[1]) for p, q in zip(head["transform"], transform))
                if off > 1e-3:
                    print(f"{name}: the grids are {off} pixels apart")
                equal = 0.999 if method == "nearest" else 0.99
                judge(name, values, wanted, equal if not kind.startswith("float") else 0.0, 0.999, nodata)
    source = f"{folder}/uint160.tif"
    for extra, more in [(["-tr", "33", "33", "-tap"], ["resolution=33,33", "aligned"]),
                        (["-ts", "300", "0"], ["size=300,0"])]:
        for method in ["bilinear", "cubic", "average"]:
            options = ["-t_srs", "EPSG:3857", "-r", method, "-et", "0", "-wm", "2000", "-overwrite", *extra]
            gdalwarp(source, f"{folder}/gdal.tif", options)
            args = ["warp", source, f"{folder}/ours.raw", 3857, method, 0]
            name = f"warp coarser {' '.join(extra)} {method}"
            head, values = ours(program, *args, *more)
            with rasterio.open(f"{folder}/gdal.tif") as theirs:
                wanted = theirs.read()
                if values.shape != wanted.shape:
                    part, is_rest_empty = without_edge(values, head, theirs)
                    judge(f"{name}: where", (part != 0).astype("u1"), (wanted != 0).astype("u1"), 1.0, 1.0)
                    # The area of a pixel may reach into the source where its centre does not, which is what GDAL
                    # goes by when it leaves out an edge: `average` has values there, and GDAL has them on our grid.
                    if method != "average":
                        judge(f"{name}: empty edge", np.array([is_rest_empty]), np.array([True]), 1.0, 1.0)
                    at = head["transform"]
                    box = [at[0], at[3] + at[5] * head["height"], at[0] + at[1] * head["width"], at[3]]
                    options = [word for word in options if word != "-tap"] + ["-te", *box]
                    gdalwarp(source, f"{folder}/whole.tif", options)
                    with rasterio.open(f"{folder}/whole.tif") as whole:
                        judge(f"{name}: our grid", values, whole.read(), 1.0, 1.0, 0)
                    more_of = [word for word in more if word != "aligned"]
                    _, values = ours(program, *args, *more_of, box_of(theirs))
            judge(name, values, wanted, 0.99, 0.999, 0)


def outlines(path, count, kind, seed):
    rng = np.random.default_rng(seed)
    features = []
    for i in range(count):
        x, y = rng.random(2) * 1000
        n = int(rng.integers(3, 12))
        radius = rng.random() * 30 + 0.2
        angles = np.sort(rng.random(n) * 2 * np.pi)
        spots = [[x + radius * np.cos(a), y + radius * np.sin(a) * 0.7] for a in angles]
        if kind == "Polygon":
            shape = [spots + spots[:1]]
            if i % 7 == 0:
                shape = [[[round(p, 0) for p in q] for q in shape[0]]]
        else:
            shape = spots
        features.append({"type": "Feature", "properties": {}, "geometry": {"type": kind, "coordinates": shape}})
    with open(path, "w") as out:
        json.dump({"type": "FeatureCollection", "features": features}, out)


def only_touches(line, column, row):
    """Whether a segment meets a pixel in its border and not inside, exactly."""
    (x0, y0), (x1, y1) = line
    first, last = Fraction(0), Fraction(1)
    for at, step, low in [(x0, x1 - x0, column), (y0, y1 - y0, row)]:
        if step == 0:
            if not low <= at <= low + 1:
                return False
            continue
        ends = sorted([Fraction(low - at, step), Fraction(low + 1 - at, step)])
        first, last = max(first, ends[0]), min(last, ends[1])
    if first > last:
        return False
    # A pixel is convex: if any of what lies in it is inside, its middle is.
    middle = (first + last) / 2
    x, y = x0 + middle * (x1 - x0), y0 + middle * (y1 - y0)
    return not (column < x < column + 1 and row < y < row + 1)


def ties(name, source, difference, side):
    """Whether each pixel that differs is met by an outline in its corner or along its border only."""
    with open(source) as file:
        outlines = [one["geometry"]["coordinates"][0] for one in json.load(file)["features"]]
    # Whole coordinates are exact in thirds of a pixel; of the others none meets a corner.
    scale = Fraction(side, 1000)
    lines = []
    for ring in outlines:
        if all(float(value).is_integer() for spot in ring for value in spot):
            spots = [(int(x) * scale, (1000 - int(y)) * scale) for x, y in ring]
            lines += list(zip(spots, spots[1:]))
    rows, columns = np.nonzero(difference[0])
    met = sum(any(only_touches(line, column, row) for line in lines
                  if min(line[0][0], line[1][0]) <= column + 1 and max(line[0][0], line[1][0]) >= column)
              for row, column in zip(rows.tolist(), columns.tolist()))
    judge(f"{name}: ties of {len(rows)}", np.array([met]), np.array([len(rows)]), 1.0, 1.0)


def rasters(program, folder):
    for kind, count in [("Polygon", 4000), ("LineString", 1500)]:
        source = f"{folder}/{kind}.geojson"
        outlines(source, count, kind, 5)
        for touched in [False, True]:
            for add in [False, True] if kind == "Polygon" else [False]:
                options = ["-burn", "1", "-te", "0", "0", "1000", "1000", "-ts", "1500", "1500", "-ot", "Byte"]
                options += ["-at"] * touched + ["-add"] * add
                gdal_rasterize(source, f"{folder}/burnt.tif", options)
                words_ours = ["touched"] * touched + ["count"] * add
                _, values = ours(program, "rasterize", source, f"{folder}/ours.raw", 1, *words_ours,
                                 "extent=0,0,1000,1000", "size=1500,1500")
                with rasterio.open(f"{folder}/burnt.tif") as theirs:
                    name = f"rasterize {kind} {'touched' if touched else 'centre'}{' count' if add else ''}"
                    wanted = theirs.read()
                    judge(name, values, wanted, 0.9999 if not add else 0.99, 0.9999)
                    if kind == "Polygon" and touched:
                        ties(name, source, values != wanted, 1500)


def clips(program, folder, side):
    source = f"{folder}/uint160.tif"
    features = []
    rng = np.random.default_rng(9)
    for _ in range(40):
        x, y = 412340 + rng.random() * side * 10, 5345670 - rng.random() * side * 10
        ring = [[x + 400 * np.cos(a), y + 300 * np.sin(a)] for a in np.sort(rng.random(9) * 2 * np.pi)]
        features.append({"type": "Feature", "properties": {},
                         "geometry": {"type": "Polygon", "coordinates": [ring + ring[:1]]}})
    # A multipolygon whose parts overlap would be a hole by the rule of even and odd: one feature each.
    with open(f"{folder}/cut.geojson", "w") as out:
        crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32633"}}
        json.dump({"type": "FeatureCollection", "crs": crs, "features": features}, out)
    for touched in [False, True]:
        # The pixels that gdal_rasterize burns with -i are those that a clip blanks.
        gdal = f"{folder}/clipped.tif"
        with rasterio.open(source) as raster:
            values, profile = raster.read(), raster.profile
        with rasterio.open(gdal, "w", **profile) as out:
            out.write(np.ones_like(values))
        options = ["-burn", "1", "-te", *profile_box(profile), "-ts", side, side, "-ot", "Byte"] + ["-at"] * touched
        gdal_rasterize(f"{folder}/cut.geojson", f"{folder}/mask.tif", options)
        with rasterio.open(f"{folder}/mask.tif") as mask:
            wanted = np.where(mask.read(1) == 1, values, 0)
        _, found = ours(program, "clip", source, f"{folder}/ours.raw", f"{folder}/cut.geojson", *["touched"] * touched)
        judge(f"clip {'touched' if touched else 'centre'}", found, wanted, 0.9999, 0.9999)


def profile_box(profile):
    t = profile["transform"]
    return [t.c, t.f + t.e * profile["height"], t.c + t.a * profile["width"], t.f]


def main():
    program, side = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 900
    print("GDAL", rasterio.__gdal_version__)
    with tempfile.TemporaryDirectory() as folder:
        rasters(program, folder)
        warps(program, folder, side)
        clips(program, folder, side)
    print(f"{failures} cases missed what is promised")
    sys.exit(1 if failures else 0)


main()
