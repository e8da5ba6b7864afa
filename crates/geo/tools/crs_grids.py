"""Writes data/crs_grids.tsv: the grids of NTv2 that lead from a geographic system to WGS 84, from PROJ's database.

A line per grid: the EPSG code of the system, 1 if the file leads the other way, the stated accuracy of the whole way,
the area of use, the names of the file, the operation. A grid that leads to a system which counts as WGS 84 is taken
with the accuracy of both steps.

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
files = {}
sql = """SELECT g.name, g.source_crs_code, g.target_crs_code, g.accuracy, g.grid_name, a.old_proj_grid_name, a.inverse_direction,
  e.west_lon, e.south_lat, e.east_lon, e.north_lat
  FROM grid_transformation g
  LEFT JOIN grid_alternatives a ON a.original_grid_name = g.grid_name
  JOIN usage u ON u.object_table_name = 'grid_transformation' AND u.object_auth_name = g.auth_name AND u.object_code = g.code
  JOIN extent e ON e.auth_name = u.extent_auth_name AND e.code = u.extent_code
  WHERE g.method_name = 'NTv2' AND g.deprecated = 0 AND g.source_crs_auth_name = 'EPSG' AND g.target_crs_auth_name = 'EPSG'"""
for name, source, target, accuracy, grid, old, inverse, w, s, e, n in db.execute(sql):
    for base, other, reverse in ((source, target, 0), (target, source, 1)):
        there, own = hub(int(other)), hub(int(base))
        if there is None or own is not None or accuracy is None:
            continue
        # An older name of the file may stand for one that leads the other way.
        for file, turned in ((grid, 0), (old, inverse)):
            if file and file.lower().endswith(".gsb"):
                for code in (int(base), *MERIDIANS.get(int(base), ())):
                    best = files.setdefault((code, reverse ^ turned, file.lower()), (accuracy + there, f"{w:g},{s:g},{e:g},{n:g}", set(), name))
                    best[2].add(file)
                    if accuracy + there < best[0]:
                        files[code, reverse ^ turned, file.lower()] = (accuracy + there, f"{w:g},{s:g},{e:g},{n:g}", best[2], name)
rows = [(code, reverse, f"{accuracy:g}", area, "|".join(sorted(names)), name) for (code, reverse, _), (accuracy, area, names, name) in files.items()]
rows = sorted(set(rows))
pathlib.Path(sys.argv[1]).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
print(len(rows), "grids")
