"""Our verdicts on validity and simplicity against GEOS."""
import collections, subprocess, sys, pathlib
import numpy as np, shapely
from corpus import cases

folder = pathlib.Path(sys.argv[1])
per_class = int(sys.argv[2]) if len(sys.argv) > 2 else 800
names, geometries = zip(*cases(int(sys.argv[3]) if len(sys.argv) > 3 else 20261115, per_class))
geometries = np.array(geometries, dtype=object)
print(f"{len(geometries)} geometries, GEOS {shapely.geos_version_string}")
text = "\n".join(shapely.to_wkb(geometries, hex=True)) + "\n"
out = subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "verdicts"], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
reasons, simple = zip(*(line.split("\t") for line in out.splitlines()))
assert len(reasons) == len(geometries), (len(reasons), len(geometries))
want = shapely.is_valid_reason(geometries)
want_simple = shapely.is_simple(geometries)
wrong, other_reason, wrong_simple = [], collections.Counter(), []
for name, g, got, reason, s, ws in zip(names, geometries, reasons, want, simple, want_simple):
    reason = reason.split("[")[0]
    if (got == "Valid Geometry") != (reason == "Valid Geometry"):
        wrong.append((name, got, reason, g.wkt[:300]))
    elif got != reason:
        other_reason[(got, reason)] += 1
    if g.geom_type != "GeometryCollection" and (s == "1") != ws:  # shapely answers False for every collection
        wrong_simple.append((name, s, ws, g.wkt[:300]))
invalid = sum(r != "Valid Geometry" for r in want)
print(f"invalid by GEOS: {invalid}; other verdict: {len(wrong)}; same verdict, other first reason: {sum(other_reason.values())}; other simplicity: {len(wrong_simple)}")
for line in other_reason.most_common(5): print("  reason (ours, GEOS):", line)
for line in wrong[:10] + wrong_simple[:10]: print(" ", line)
sys.exit(bool(wrong or wrong_simple))
