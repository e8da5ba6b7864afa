"""Our make_valid against GEOS: valid by GEOS, and of the same area to 1e-9 of it.

Dust is counted apart: areas that differ by no more than moving every edge of the input by one last bit of its largest
coordinate can change, which is length times bit. Rings without an area (all corners on one line) and surfaces that are a
few last bits wide are such; there GEOS itself answers now with nothing and now with a sliver. Nothing else may differ.
"""
import collections, math, subprocess, sys, pathlib
import numpy as np, shapely
from corpus import cases

per_class = int(sys.argv[2]) if len(sys.argv) > 2 else 60
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 20261115
names, geometries = zip(*((n, g) for n, g in cases(seed, per_class) if "Polygon" in g.geom_type and not g.is_valid))
geometries = np.array(geometries, dtype=object)
text = "\n".join(shapely.to_wkb(geometries, hex=True)) + "\n"
failed = False
def area(g): return sum(p.area for p in shapely.get_parts(g) if "Polygon" in p.geom_type) if g.geom_type == "GeometryCollection" else g.area
for method in ["linework", "structure"]:
    out = subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "repairs", method], input=text, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert len(out) == len(geometries)
    bad, dust, geos_failed = collections.Counter(), collections.Counter(), 0
    shown = []
    for name, g, got in zip(names, geometries, out):
        if got == "-":
            bad["hopeless", name] += 1
            continue
        ours = shapely.from_wkb(got)
        try:
            theirs = shapely.make_valid(g) if method == "linework" else shapely.make_valid(g, method="structure", keep_collapsed=False)
        except shapely.errors.GEOSException:
            geos_failed += 1
            theirs = ours
        a, b = ours.area, area(theirs)
        if not ours.is_valid:
            bad["invalid", name] += 1
            shown.append(("invalid", name, shapely.is_valid_reason(ours), g.wkt[:200]))
        elif abs(a - b) > 1e-9 * max(abs(a), abs(b)):
            bit = math.ulp(max(map(abs, g.bounds)))
            if abs(a - b) <= g.length * bit:
                dust[name] += 1
                continue
            bad["area", name] += 1
            shown.append(("area", name, a, b, g.wkt[:300]))
    print(f"{method}: {len(geometries)} invalid surfaces; not as GEOS: {sum(bad.values())}; dust: {sum(dust.values())} {dict(dust)}; GEOS gave up on {geos_failed}")
    for k, v in bad.most_common(20): print("  ", *k, v)
    for line in shown[:12]: print("  ", line)
    failed |= bool(bad)
sys.exit(failed)
