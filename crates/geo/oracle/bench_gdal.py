"""Converts FROM to TO with the GDAL inside pyogrio's wheel, as ogr2ogr would; prints CPU seconds and peak memory."""
import ctypes, glob, os, pathlib, resource, sys
import pyogrio

lib = glob.glob(str(pathlib.Path(pyogrio.__file__).parent.parent / "pyogrio.libs" / "libgdal*.so*"))[0]
gdal = ctypes.CDLL(lib)
gdal.GDALOpenEx.restype = ctypes.c_void_p
gdal.GDALVectorTranslateOptionsNew.restype = ctypes.c_void_p
gdal.GDALVectorTranslate.restype = ctypes.c_void_p
gdal.GDALAllRegister()
source, target = sys.argv[1:3]
driver = {"gpkg": "GPKG", "fgb": "FlatGeobuf", "geojsonl": "GeoJSONSeq"}[target.rsplit(".", 1)[1]]
if os.path.exists(target): os.remove(target)
dataset = gdal.GDALOpenEx(source.encode(), 4, None, None, None)
assert dataset, "cannot open"
args = (ctypes.c_char_p * 3)(b"-f", driver.encode(), None)
options = gdal.GDALVectorTranslateOptionsNew(args, None)
sources = (ctypes.c_void_p * 1)(dataset)
result = gdal.GDALVectorTranslate(target.encode(), None, 1, sources, ctypes.c_void_p(options), None)
assert result, "cannot write"
gdal.GDALClose(ctypes.c_void_p(result))
usage = resource.getrusage(resource.RUSAGE_SELF)
print(f"GDAL {pyogrio.__gdal_version__} {target}: {usage.ru_utime + usage.ru_stime:.1f} s CPU, {usage.ru_maxrss // 1024} MB")
