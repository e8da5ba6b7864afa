"""Writes data/crs_grids.tsv: the grids that lead from a geographic system to WGS 84, from PROJ's database.

A line per grid: the EPSG code of the system, the stated accuracy of the whole way, the area of use, the names of its
files (NTv2 and GeoTIFF; a minus before one that leads the other way), the operation. A grid that leads to a system
which counts as WGS 84 is taken with the accuracy of both steps.

    target/venv/bin/python crates/geo/tools/crs_grids.py crates/geo/data/crs_grids.tsv
"""
import pathlib, sqlite3, sys
import pyproj
from pyproj.transformer import TransformerGroup
from crs_candidates import towgs84

pyproj.network.set_network_enabled(False)
db = sqlite3.connect(pathlib.Path(pyproj.datadir.get_data_dir()) / "proj.db")
hubs = {}

def hub(code):
    """The accuracy of the way from WGS 84, if it changes nothing."""
    if code == 4326:
        return 0.0
    if code not in hubs:
        hubs[code] = None
        try:
            group = TransformerGroup(4326, code, always_xy=True)
            first = group.transformers[0]
            if "Ballpark" not in first.description and not any(towgs84(first.definition) or []):
                hubs[code] = first.accuracy
        except Exception:
            pass
    return hubs[code]

# The same datum, counted from another meridian.
MERIDIANS = {4275: [4807], 4265: [4806], 4207: [4803], 4312: [4805], 4149: [4801]}
grids = {}
sql = """SELECT g.name, g.method_name, g.source_crs_code, g.target_crs_code, g.accuracy, g.grid_name, a.old_proj_grid_name, a.proj_grid_name,
  a.inverse_direction, e.west_lon, e.south_lat, e.east_lon, e.north_lat
  FROM grid_transformation g
  LEFT JOIN grid_alternatives a ON a.original_grid_name = g.grid_name AND a.proj_method = 'hgridshift'
  JOIN usage u ON u.object_table_name = 'grid_transformation' AND u.object_auth_name = g.auth_name AND u.object_code = g.code
  JOIN extent e ON e.auth_name = u.extent_auth_name AND e.code = u.extent_code
  WHERE g.method_name IN ('NTv2', 'NTv1', 'NADCON') AND g.deprecated = 0
  AND g.source_crs_auth_name = 'EPSG' AND g.target_crs_auth_name = 'EPSG'"""
for name, method, source, target, accuracy, original, old, tiff, inverse, w, s, e, n in db.execute(sql):
    for base, other, reverse in ((source, target, 0), (target, source, 1)):
        there, own = hub(int(other)), hub(int(base))
        if there is None or own is not None or accuracy is None:
            continue
        # The files of PROJ may lead the other way than the original.
        named = ((original, 0, ".gsb"), (old, inverse, ".gsb"), (tiff, inverse, ".tif"))
        # NTv1 and NADCON have files of their own, which are not read.
        files = [(file, reverse ^ turned) for file, turned, end in named if file and file.lower().endswith(end) and (method == "NTv2" or end == ".tif")]
        for code in (int(base), *MERIDIANS.get(int(base), ())) if files else ():
            # The same file under two operations is one grid, by the better accuracy.
            grid = grids.setdefault((code, *sorted((file.lower(), way) for file, way in files)[-1]), [accuracy + there, f"{w:g},{s:g},{e:g},{n:g}", set(), name])
            grid[2].update("-" * way + file for file, way in files)
            if accuracy + there < grid[0]:
                grid[0], grid[1], grid[3] = accuracy + there, f"{w:g},{s:g},{e:g},{n:g}", name
rows = sorted({(key[0], f"{accuracy:g}", area, "|".join(sorted(names, key=lambda n: (n.lstrip("-").endswith(".tif"), n))), name) for key, (accuracy, area, names, name) in grids.items()})
pathlib.Path(sys.argv[1]).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
print(len(rows), "grids")
