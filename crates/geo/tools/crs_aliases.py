"""Writes the names that ESRI gives to EPSG systems, from PROJ's database.

    target/venv/bin/python crates/geo/tools/crs_aliases.py target/crs_aliases.tsv
"""
import pathlib, sqlite3, sys
import pyproj

db = sqlite3.connect(pathlib.Path(pyproj.datadir.get_data_dir()) / "proj.db")
rows = db.execute("SELECT DISTINCT alt_name, code FROM alias_name WHERE auth_name = 'EPSG' AND source = 'ESRI' AND table_name IN ('projected_crs', 'geodetic_crs') ORDER BY CAST(code AS INTEGER)")
with open(sys.argv[1], "w") as out:
    for name, code in rows:
        out.write(f"{code}\t{name}\n")
