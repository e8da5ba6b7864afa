"""The GDAL of the installed rasterio as a command: `wheel.py warp|rasterize OPTION... IN OUT`.

The wheel has no gdalwarp, but its library exports what gdalwarp does. The last line of the output is the processor
time of that call as JSON, so that the start of Python is not counted.
"""

import ctypes
import glob
import json
import os
import resource
import sys

import rasterio

FORM = {"warp": ("GDALWarpAppOptionsNew", "GDALWarp", 0x02), "rasterize": ("GDALRasterizeOptionsNew", "GDALRasterize", 0x04)}


def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main():
    verb, *options, source, target = sys.argv[1:]
    lib = ctypes.CDLL(glob.glob(os.path.join(os.path.dirname(rasterio.__file__), "..", "rasterio.libs", "libgdal*"))[0])
    new, call, kind = FORM[verb]
    for name in ("GDALOpenEx", new, call):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.GDALAllRegister()
    began = spent()
    words = (ctypes.c_char_p * (len(options) + 1))()
    words[:-1] = [word.encode() for word in options]
    made = ctypes.c_void_p(getattr(lib, new)(words, None))
    dataset = ctypes.c_void_p(lib.GDALOpenEx(source.encode(), kind, None, None, None))
    failed = ctypes.c_int(0)
    many = (1, (ctypes.c_void_p * 1)(dataset)) if verb == "warp" else (dataset,)
    result = getattr(lib, call)(target.encode(), None, *many, made, ctypes.byref(failed))
    if not result or failed.value:
        sys.exit(f"{call} failed")
    lib.GDALClose(ctypes.c_void_p(result))
    lib.GDALClose(dataset)
    print(json.dumps({"cpu": spent() - began, "version": rasterio.__gdal_version__}))


with rasterio.Env():
    main()
