"""Reads files that GDAL writes, in all layouts, codecs and types, with our reader and with GDAL, and
compares every pixel; converts each to a COG and has GDAL and rio-cogeo judge it.

    check.py ORACLE DIRECTORY [--every N] [FILE...]

Prints files agreed / all, and every disagreement. With --every, only each Nth of the files that GDAL writes is
taken. Ends with 1 if there is a disagreement.
"""

import itertools
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import rasterio
from rasterio.enums import ColorInterp
from rasterio.transform import Affine
from rio_cogeo import cog_validate

warnings.filterwarnings("ignore")
ORACLE, DIR, EXTRA = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
EVERY = int(EXTRA[1]) if EXTRA[:1] == ["--every"] else 1
EXTRA = EXTRA[2:] if EXTRA[:1] == ["--every"] else EXTRA
process = subprocess.Popen([ORACLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

# Lossy codecs may be decoded with other roundings: how much a value may differ.
TOLERANCE = {"JPEG": 3, "WEBP": 3}


def ask(*words):
    process.stdin.write("\t".join(map(str, words)) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit(f"the oracle died at {words}")
    return json.loads(line)


TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]


def picture(dtype, bands, height, width, seed):
    """Smooth with noise, the limits of the type, and some zeros as nodata."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = np.sin(x / 17.0) * np.cos(y / 23.0) * 50 + 100
    data = np.stack([base + rng.normal(0, 3, base.shape) + 5 * band for band in range(bands)])
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        data = np.clip(np.round(data), max(info.min, -(2**62)), min(info.max, 2**62)).astype(dtype)
        data[:, 0, 0], data[:, 0, 1] = info.min, info.max
    else:
        data = data.astype(dtype)
        data[:, 0, 0] = np.finfo(dtype).max
    data[:, 5:20, 5:30] = 0
    return data


def profiles():
    """Name, array options and creation options of each file."""
    layouts = [
        dict(tiled=True, blockxsize=64, blockysize=48),
        dict(tiled=True, blockxsize=16, blockysize=16),
        dict(blockysize=1),
        dict(blockysize=7),
        dict(blockysize=4096),
    ]
    codecs = [
        dict(),
        dict(compress="deflate"),
        dict(compress="lzw"),
        dict(compress="zstd"),
        dict(compress="packbits"),
        dict(compress="lerc", MAX_Z_ERROR=0),
        dict(compress="lerc_deflate", MAX_Z_ERROR=0),
        dict(compress="lerc_zstd", MAX_Z_ERROR=0),
    ]
    for (at, layout), codec, interleave, (dtype, bands) in itertools.product(
        enumerate(layouts), codecs, ["pixel", "band"], itertools.product(TYPES, [1, 3])
    ):
        lerc = codec.get("compress", "").startswith("lerc")
        if bands == 1 and interleave == "band" or lerc and dtype in ("int64", "uint64"):
            continue
        predictors = [1]
        if codec.get("compress") in ("deflate", "lzw", "zstd"):
            predictors = [1, 2] + ([3] if dtype.startswith("float") else [])
        for predictor in predictors:
            options = dict(layout, **codec, interleave=interleave)
            if predictor > 1:
                options["predictor"] = predictor
            name = f"{dtype}-{bands}-{codec.get('compress', 'none')}-p{predictor}-l{at}-{interleave}"
            yield name, dtype, bands, options
    for bits, dtype in [(1, "uint8"), (2, "uint8"), (3, "uint8"), (4, "uint8"), (7, "uint8"), (9, "uint16"), (12, "uint16"),
                        (15, "uint16"), (17, "uint32"), (24, "uint32"), (31, "uint32"), (16, "float32")]:
        for codec, layout, bands in itertools.product([dict(), dict(compress="deflate"), dict(compress="lzw")], layouts[:4], [1, 3]):
            for interleave in ["pixel", "band"][:bands]:
                yield (f"bits{bits}-{dtype}-{bands}-{codec.get('compress', 'none')}-{interleave}-{layout}", dtype, bands,
                       dict(layout, **codec, nbits=bits, interleave=interleave))
    for bands, photometric in [(1, "minisblack"), (3, "rgb"), (3, "ycbcr")]:
        for layout in [dict(tiled=True, blockxsize=64, blockysize=48), dict(blockysize=16)]:
            yield f"jpeg-{bands}-{photometric}-{len(layout)}", "uint8", bands, dict(layout, compress="jpeg", photometric=photometric, JPEG_QUALITY=90, interleave="pixel")
    for bands, lossless in itertools.product([3, 4], [True, False]):
        yield f"webp-{bands}-{lossless}", "uint8", bands, dict(tiled=True, blockxsize=64, blockysize=64, compress="webp", WEBP_LOSSLESS=lossless, interleave="pixel")
    for order, big, dtype in itertools.product(["big", "little"], ["yes", "no"], TYPES):
        for codec in [dict(), dict(compress="deflate", predictor=2), dict(compress="lzw")]:
            yield f"{order}-{big}-{dtype}-{codec}", dtype, 2, dict(codec, ENDIANNESS=order, BIGTIFF=big, tiled=True, blockxsize=32, blockysize=32)
    for dtype in ["float32", "float64"]:
        yield f"big-float-{dtype}", dtype, 2, dict(ENDIANNESS="big", compress="deflate", predictor=3)
    for bands in [5, 70]:
        yield f"many-{bands}", "uint16", bands, dict(compress="deflate", predictor=2, tiled=True, blockxsize=32, blockysize=32, interleave="pixel")
    yield "sparse", "int16", 1, dict(SPARSE_OK=True, tiled=True, blockxsize=64, blockysize=64, sparse=True)
    yield "sparse-strips", "uint8", 2, dict(SPARSE_OK=True, sparse=True, blockysize=8)
    yield "mask", "uint8", 3, dict(tiled=True, blockxsize=64, blockysize=64, compress="deflate", mask="inside")
    yield "mask-beside", "uint8", 1, dict(mask="beside")
    yield "alpha", "uint8", 4, dict(photometric="rgb", alpha="yes")
    yield "overviews", "uint16", 1, dict(tiled=True, blockxsize=64, blockysize=64, compress="deflate", overviews=True)


def write(path, dtype, bands, options, seed):
    options = dict(options)
    sparse, mask, overviews = options.pop("sparse", False), options.pop("mask", None), options.pop("overviews", False)
    nbits = options.get("nbits")
    height, width = 131, 157
    data = picture(dtype, bands, height, width, seed)
    if nbits and dtype != "float32":
        data = (np.abs(data.astype("int64")) % (2**nbits)).astype(dtype)
    crs = ["EPSG:32633", "EPSG:4326", "EPSG:3857", "ESRI:54030"][seed % 4]
    step = 0.001 if crs == "EPSG:4326" else 10.0
    profile = dict(driver="GTiff", width=width, height=height, count=bands, dtype=dtype, crs=crs,
                   transform=Affine(step, 0, 13.0 if step < 1 else 500000.0, 0, -step, 50.0 if step < 1 else 4900000.0))
    if not nbits and dtype not in ("int64", "uint64") and mask is None:
        profile["nodata"] = 0
    flags = dict(GDAL_TIFF_INTERNAL_MASK=mask == "inside")
    with rasterio.Env(**flags), rasterio.open(path, "w", **profile, **options) as out:
        if sparse:
            out.write(data[:, :64, :64], window=rasterio.windows.Window(0, 0, 64, 64))
        else:
            out.write(data)
        if mask:
            valid = np.full((height, width), 255, "uint8")
            valid[30:60, 40:90] = 0
            out.write_mask(valid)
        out.set_band_description(1, "first & <best>")
        if not nbits:
            out.scales, out.offsets = [0.1] * bands, [-5.0] * bands
    if overviews:
        with rasterio.open(path, "r+") as out:
            out.build_overviews([2, 4], rasterio.enums.Resampling.average)


def equal(ours, theirs, tolerance=0):
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} and {theirs.shape}"
    if ours.dtype != theirs.dtype:
        return f"type {ours.dtype} and {theirs.dtype}"
    if tolerance:
        off = np.abs(ours.astype("float64") - theirs.astype("float64"))
        return None if off.max() <= tolerance else f"differs by up to {off.max()}, mean {off.mean():.3f}"
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    return None if same.all() else f"{(~same).sum()} of {same.size} values differ"


def compare(path, ours, raw, tolerance, is_ours=False):
    """Everything that both say of a file."""
    wrong = []
    with rasterio.open(path) as file:
        theirs = file.read()
        if "error" in ours:
            return [f"we refuse it: {ours['error']}"]
        mine = np.fromfile(raw, dtype=ours["sample"]).reshape(ours["bands"], ours["height"], ours["width"])
        wrong.append(equal(mine, theirs, tolerance))
        given = None if file.nodata is None else float(file.nodata)
        found = None if ours["nodata"] is None else float(ours["nodata"])
        if given != found and not (given != given and found != found):
            wrong.append(f"nodata {found}, GDAL {given}")
        if not file.transform.is_identity and list(file.transform.to_gdal()) != ours["transform"]:
            wrong.append(f"transform {ours['transform']}, GDAL {file.transform.to_gdal()}")
        if file.crs and file.crs.to_authority() and ours["crs"] != ":".join(file.crs.to_authority()):
            wrong.append(f"crs {ours['crs']}, GDAL {file.crs.to_authority()}")
        if list(file.descriptions) != ours["names"]:
            wrong.append(f"names {ours['names'][:3]}, GDAL {file.descriptions[:3]}")
        if [list(pair) for pair in zip(file.scales, file.offsets)] != [list(pair) for pair in ours["scales"]]:
            wrong.append(f"scales {ours['scales'][:3]}, GDAL {file.scales[:3]}")
        alpha = [at for at, kind in enumerate(file.colorinterp) if kind == ColorInterp.alpha]
        if alpha[:1] != ([] if ours["alpha"] is None else [ours["alpha"]]):
            wrong.append(f"alpha {ours['alpha']}, GDAL {alpha}")
        if len(file.overviews(1)) + 1 != ours["levels"]:
            wrong.append(f"levels {ours['levels']}, GDAL {file.overviews(1)}")
        if ours["mask"]:
            ask("mask", path, raw)
            mask = np.fromfile(raw, dtype="uint8").reshape(ours["height"], ours["width"])
            wrong.append(equal(mask, file.read_masks(1)))
        factors = file.overviews(1)
    for at in range(len(factors)):
        told = ask("level", path, raw, at + 1)
        with rasterio.open(path, overview_level=at) as file:
            theirs = file.read()
        mine = np.fromfile(raw, dtype=told["sample"]).reshape(told["bands"], told["height"], told["width"])
        why = equal(mine, theirs, tolerance)
        wrong.append(why and f"overview {at + 1}: {why}")
    return [why for why in wrong if why]


def main():
    files, agreed, cogs, good = 0, 0, 0, 0
    disagreements = []
    raw, made = DIR / "raw", DIR / "cog.tif"
    all_files = [(name, None, dtype, bands, options) for name, dtype, bands, options in profiles()]
    all_files += [(str(path), path, None, None, {}) for path in EXTRA]
    for seed, (name, given, dtype, bands, options) in enumerate(all_files):
        if not given and seed % EVERY:
            continue
        path = given or DIR / "a.tif"
        tolerance = 0
        if not given:
            for old in [path, Path(f"{path}.msk"), Path(f"{path}.aux.xml")]:
                old.unlink(missing_ok=True)
            try:
                write(path, dtype, bands, options, seed)
            except Exception as error:  # GDAL does not write every combination.
                print(f"not made: {name}: {error}")
                continue
            codec = str(options.get("compress", "")).upper()
            tolerance = 0 if options.get("WEBP_LOSSLESS") is True else TOLERANCE.get(codec, 0)
        else:
            try:
                with rasterio.open(path) as file:
                    file.read()
            except Exception as error:
                print(f"GDAL does not read {path}: {error}")
                continue
        files += 1
        told = ask("read", path, raw)
        wrong = compare(path, told, raw, tolerance)
        agreed += not wrong
        disagreements += [(name, "read", why) for why in wrong]
        if files % 100 == 0:
            print(f"{files} files, {len(disagreements)} disagreements", flush=True)
        if "error" in told or not given and seed % 4 and seed < 900:
            continue
        # Our COG of it: what GDAL reads is what we read of the source.
        codec = ["deflate", "zstd", "lzw", "none"][cogs % 4]
        cogs += 1
        written = ask("cog", path, made, codec, [64, 128, 32][cogs % 3], 1 + cogs % 2)
        if "error" in written:
            disagreements.append((name, f"cog {codec}", written["error"]))
            continue
        wrong = [] if written["valid"] else [f"our validator: {written['found']}"]
        source = np.fromfile(raw, dtype=told["sample"]) if ask("read", path, raw) else None
        with rasterio.open(made) as file:
            why = equal(source.reshape(told["bands"], told["height"], told["width"]), file.read())
            wrong += [f"GDAL reads other pixels: {why}"] if why else []
        wrong += compare(made, ask("read", made, raw), raw, 0)
        valid, errors, _ = cog_validate(made, strict=True, quiet=True)
        wrong += [] if valid else [f"rio-cogeo: {errors}"]
        good += not wrong
        disagreements += [(name, f"cog {codec}", why) for why in wrong]
    for name, what, why in disagreements:
        print(f"{what}: {name}: {why}")
    print(f"read: {agreed} of {files} files agree with GDAL {rasterio.__gdal_version__}")
    print(f"written: {good} of {cogs} COGs are read by GDAL with the same pixels and are valid for rio-cogeo")
    sys.exit(0 if not disagreements else 1)


main()
