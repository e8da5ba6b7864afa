"""Peers that come as Python packages: files.py gdal|geopandas --version | IN OUT [CRS].

gdal is the library inside pyogrio's wheel, asked as ogr2ogr asks it; geopandas reads with pyogrio and Arrow and
writes GeoParquet."""
import ctypes, glob, os, pathlib, sys
import pyogrio

who, args = sys.argv[1], sys.argv[2:]


def gdal(source, target, crs=None):
    found = pathlib.Path(pyogrio.__file__).parent.parent / "pyogrio.libs" / "libgdal*.so*"
    lib = ctypes.CDLL(glob.glob(str(found))[0])
    for name in ("GDALOpenEx", "GDALVectorTranslateOptionsNew", "GDALVectorTranslate"):
        getattr(lib, name).restype = ctypes.c_void_p
    # The wheel's own data, without which no system is known.
    lib.CPLSetConfigOption(b"GDAL_DATA", os.fsencode(pyogrio.get_gdal_data_path() or ""))
    proj = os.fsencode(pathlib.Path(pyogrio.__file__).parent / "proj_data")
    lib.OSRSetPROJSearchPaths((ctypes.c_char_p * 2)(proj, None))
    lib.GDALAllRegister()
    words = ["-f", {"gpkg": "GPKG", "fgb": "FlatGeobuf"}[target.rsplit(".", 1)[1]]]
    if crs: words += ["-t_srs", crs]
    dataset = lib.GDALOpenEx(source.encode(), 4, None, None, None)
    if not dataset: sys.exit("cannot open")
    options = lib.GDALVectorTranslateOptionsNew((ctypes.c_char_p * (len(words) + 1))(*map(str.encode, words), None), None)
    result = lib.GDALVectorTranslate(target.encode(), None, 1, (ctypes.c_void_p * 1)(dataset), ctypes.c_void_p(options), None)
    if not result: sys.exit("cannot write")
    lib.GDALClose(ctypes.c_void_p(result))


def geopandas(source, target, crs=None):
    import geopandas
    frame = geopandas.read_file(source, engine="pyogrio", use_arrow=True)
    if crs: frame = frame.to_crs(crs)
    frame.to_parquet(target, compression="zstd", write_covering_bbox=True)


if args == ["--version"]:
    version = ".".join(map(str, pyogrio.__gdal_version__))
    if who == "geopandas":
        import geopandas as package
        version = f"geopandas {package.__version__}, {version}"
    print(f"GDAL {version}, in pyogrio {pyogrio.__version__}")
else:
    {"gdal": gdal, "geopandas": geopandas}[who](*args)
