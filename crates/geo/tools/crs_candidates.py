"""Writes what PROJ knows about every projected, geographic and geocentric system of EPSG and every projected and
geographic one of ESRI, for crs_table to verify, and the points that tests/suite/crs.rs compares with.

candidates: a line per system: authority, code, kind (P projected, G geographic, H geographic with heights, C geocentric),
north first, deprecated, name, area of use, stated accuracy of the operation from WGS 84 (-1: ballpark), that operation,
a PROJ string with its datum shift, sixteen points transformed by PROJ, there and back, the geographic system under it,
and its datum. The stated accuracy is that of the operation in the middle of the area; where PROJ prefers another one
for some of the sixteen points, or of a finer grid over a large geographic system, it is what that one promises and how far
the two are apart. The line of a system with heights is that of the geographic one on its datum; its stated accuracy
counts the heights as well, for which PROJ may prefer another operation. golden: a line per system: authority and code, kind, deprecated, accuracy, and three
other points, with the way back where it leads elsewhere. ESRI's systems that have an EPSG code are left out of both.

    target/venv/bin/python crates/geo/tools/crs_candidates.py target/crs_same.tsv target/crs_candidates.tsv target/crs_golden.tsv
"""
import functools, math, pathlib, random, re, sqlite3, sys, warnings
import pyproj
from pyproj.aoi import AreaOfInterest
from pyproj.enums import PJType, TransformDirection
from pyproj.transformer import TransformerGroup

warnings.filterwarnings("ignore")
pyproj.network.set_network_enabled(False)
WGS84 = pyproj.CRS.from_epsg(4326)
SHARES = (0.02, 0.3, 0.7, 0.98)
METRES_PER_DEGREE = 111320
UNKNOWN = 999  # what EPSG states where it does not know an accuracy
db = sqlite3.connect(pathlib.Path(pyproj.datadir.get_data_dir()) / "proj.db")

def numbers(step):
    return {k: v for k, v in re.findall(r"(\w+)=([^ ]+)", step)}

def towgs84(definition):
    """The parameters of the one Helmert step, None if the datum is taken over as it is; raises if it is another thing."""
    steps = [s for s in definition.split(" step ") if re.search(r"proj=(helmert|molobadekas|hgridshift|gridshift|geogoffset|affine|deformation|vgridshift|xyzgridshift)", s)]
    if not steps:
        # A shift by nothing between two ellipsoids still goes over geocentric coordinates.
        return [0, 0, 0] if "proj=cart" in definition else None
    if len(steps) > 1 or "helmert" not in steps[0]:
        raise ValueError("another operation")
    step, p = steps[0], numbers(steps[0])
    if any(k in p for k in ("dx", "dy", "dz", "t_epoch", "drx", "ds")):
        raise ValueError("time-dependent")
    sign = 1 if re.search(r"(^| )inv( |$)", step) else -1
    turn = -1 if p.get("convention") == "coordinate_frame" else 1
    f = lambda k: float(p.get(k, 0))
    # The inverse of small rotations is their negative, to the accuracy that is verified.
    return [sign * f("x"), sign * f("y"), sign * f("z"), sign * turn * f("rx"), sign * turn * f("ry"), sign * turn * f("rz"), sign * f("s")]

def plain(proj4):
    proj4 = proj4.replace(" +type=crs", "").replace(" +no_defs", "")
    for datum, ellps in (("WGS84", "WGS84"), ("NAD83", "GRS80"), ("NAD27", "clrk66"), ("OSGB36", "airy"), ("GGRS87", "GRS80"), ("potsdam", "bessel"), ("carthage", "clrk80ign"), ("hermannskogel", "bessel"), ("ire65", "mod_airy"), ("nzgd49", "intl")):
        proj4 = proj4.replace(f"+datum={datum}", f"+ellps={ellps}")
    return re.sub(r" \+(towgs84|nadgrids)=[^ ]+", "", proj4)

def there_and_back(t, lon, lat):
    """Where PROJ brings a point, and where it brings that. Small rotations are taken as such in both directions, so
    that a datum shift leads back to within millimetres only."""
    x, y = t.transform(lon, lat)
    return x, y, *t.transform(x, y, direction=TransformDirection.INVERSE)

def base(crs):
    """The EPSG code of the geographic system under a system; 0 if it has none."""
    definition = crs.to_json_dict()
    found = definition.get("base_crs", definition).get("id", {})
    return found["code"] if found.get("authority") == "EPSG" else 0

@functools.cache
def rotated():
    """Which datum counts from Greenwich what another counts from its own meridian."""
    sql = """SELECT DISTINCT s.datum_code, t.datum_code FROM other_transformation o
      JOIN geodetic_crs s ON s.auth_name = o.source_crs_auth_name AND s.code = o.source_crs_code
      JOIN geodetic_crs t ON t.auth_name = o.target_crs_auth_name AND t.code = o.target_crs_code
      JOIN geodetic_datum d ON d.auth_name = t.datum_auth_name AND d.code = t.datum_code
      WHERE o.method_auth_name = 'EPSG' AND o.method_code = '9601' AND d.prime_meridian_code = '8901'"""
    return {str(own): greenwich for own, greenwich in db.execute(sql)}

def datum(authority, code):
    """The number of the datum of EPSG or ESRI, which do not overlap; 0 if it has none."""
    under = db.execute("SELECT geodetic_crs_auth_name, geodetic_crs_code FROM projected_crs WHERE auth_name = ? AND code = ?", (authority, code)).fetchone()
    found = db.execute("SELECT datum_auth_name, datum_code FROM geodetic_crs WHERE auth_name = ? AND code = ?", under or (authority, code)).fetchone()
    if not found or found[0] not in ("EPSG", "ESRI") or not str(found[1]).isdigit():
        return 0
    return int(rotated().get(str(found[1]), found[1]))

def apart(a, b, geographic):
    """The distance of two close places, in metres or the unit of the system."""
    if not geographic:
        return math.hypot(a[0] - b[0], a[1] - b[1])
    around = (a[0] - b[0]) % 360
    return math.hypot(min(around, 360 - around) * math.cos(math.radians(b[1])), a[1] - b[1]) * METRES_PER_DEGREE

def grid(w, s, e, n):
    """Points over an area, at most 10 degrees apart: PROJ may prefer an operation for a country in a large one."""
    e = e if e >= w else e + 360
    columns, rows = (max(4, math.ceil((high - low) / 10)) for low, high in ((w, e), (s, n)))
    for i in range(columns):
        for j in range(rows):
            lon = w + (e - w) * (0.02 + 0.96 * i / (columns - 1))
            yield lon - 360 if lon > 180 else lon, s + (n - s) * (0.02 + 0.96 * j / (rows - 1))

def spread(crs, accuracy, points):
    """The accuracy that holds at all of these points, each with where our operation brings it."""
    best = pyproj.Transformer.from_crs(WGS84, crs, always_xy=True)
    unit = 1 if crs.is_geographic else crs.axis_info[0].unit_conversion_factor
    for lon, lat, x, y in points:
        there = best.transform(lon, lat)
        try:
            promised = best.get_last_used_operation().accuracy
        except pyproj.exceptions.ProjError:
            return accuracy  # there is one operation only
        off = apart((x, y), there, crs.is_geographic) * unit
        if 0 <= promised < UNKNOWN and off > 0.001 and math.isfinite(off):
            accuracy = max(accuracy, off + promised)
    return accuracy if accuracy < 10 or accuracy == round(accuracy) else math.ceil(accuracy)

def spread_with_heights(code, kind, accuracy, proj4, points):
    """The accuracy that holds at all of these points with heights, of an operation by the parameters of the PROJ string."""
    words = dict(word.partition("=")[::2] for word in proj4.split())
    ellipsoid = " ".join(f"{key}={words[key]}" for key in ("+ellps", "+a", "+b", "+rf", "+f") if key in words)
    shift = [float(v) for v in words.get("+towgs84", "0,0,0").split(",")] + [0] * 4
    helmert = " ".join(f"+{key}={value}" for key, value in zip(("x", "y", "z", "rx", "ry", "rz", "s"), shift))
    cart = lambda shape: pyproj.Transformer.from_pipeline(f"+proj=pipeline +step +proj=unitconvert +xy_in=deg +xy_out=rad +step +proj=cart {shape}")
    to_wgs84, to_system = cart("+ellps=WGS84"), cart(ellipsoid)
    ours = pyproj.Transformer.from_pipeline(f"+proj=pipeline +step +inv +proj=helmert {helmert} +convention=position_vector")
    best = pyproj.Transformer.from_crs(4978 if kind == "C" else 4979, int(code), always_xy=True)
    for lon, lat in points:
        for height in (0, 3000):
            start = to_wgs84.transform(lon, lat, height)
            there = best.transform(*start) if kind == "C" else to_system.transform(*best.transform(lon, lat, height))
            try:
                used = best.get_last_used_operation()
            except pyproj.exceptions.ProjError:
                continue
            if "push" in used.definition:
                continue  # it mixes a shift that keeps heights with one that changes them
            promised = used.accuracy
            off = math.dist(ours.transform(*start), there)
            if 0 <= promised < UNKNOWN and off > 0.001 and math.isfinite(off):
                accuracy = max(accuracy, off + promised)
    return accuracy if accuracy < 10 or accuracy == round(accuracy) else math.ceil(accuracy)

def with_heights():
    """Geographic systems with heights and geocentric ones of EPSG, each with the geographic one on its datum."""
    sql = """SELECT a.code, a.name, a.type, a.deprecated, (SELECT b.code FROM geodetic_crs b WHERE b.auth_name = 'EPSG' AND b.type = 'geographic 2D'
      AND b.datum_auth_name = a.datum_auth_name AND b.datum_code = a.datum_code ORDER BY b.deprecated, CAST(b.code AS INTEGER) LIMIT 1)
      FROM geodetic_crs a WHERE a.auth_name = 'EPSG' AND a.type IN ('geographic 3D', 'geocentric')"""
    return [(str(code), name, kind, deprecated, str(under)) for code, name, kind, deprecated, under in db.execute(sql) if under]

def size(info):
    if not info.area_of_use:
        return 0
    w, s, e, n = info.area_of_use.bounds
    return (e - w if e >= w else e - w + 360) * (n - s)

def infos():
    """Every system once; of several areas of use the largest."""
    for authority in ("EPSG", "ESRI"):
        for kind in ("PROJECTED_CRS", "GEOGRAPHIC_2D_CRS"):
            found = {}
            for info in pyproj.database.query_crs_info(auth_name=authority, pj_types=[getattr(PJType, kind)], allow_deprecated=True):
                if info.code not in found or size(info) > size(found[info.code]):
                    found[info.code] = info
            yield from found.values()

def row(info, chance):
    """The candidate's cells, and the line of golden points."""
    crs = pyproj.CRS.from_authority(info.auth_name, info.code)
    w, s, e, north = info.area_of_use.bounds if info.area_of_use else (-180, -90, 180, 90)
    e2 = e if e >= w else e + 360
    cx, cy = (w + e2) / 2, (s + north) / 2
    cx = cx - 360 if cx > 180 else cx
    group = TransformerGroup(WGS84, crs, always_xy=True, area_of_interest=AreaOfInterest(cx, cy, cx, cy))
    if not group.transformers:
        raise ValueError("no operation")
    t = group.transformers[0]
    shift = towgs84(t.definition)
    accuracy = -1 if "Ballpark" in t.description else t.accuracy
    proj4 = plain(crs.to_proj4())
    if shift is not None:
        proj4 += " +towgs84=" + ",".join(f"{v + 0:.12g}" for v in shift)
    def at(fx, fy):
        lon, lat = w + (e2 - w) * fx, s + (north - s) * fy
        return lon - 360 if lon > 180 else lon, lat
    points = []
    for fx in SHARES:
        for fy in SHARES:
            lon, lat = at(fx, fy)
            points.append((lon, lat, *there_and_back(t, lon, lat)))
    seen = [p[:4] for p in points]
    if crs.is_geographic and max(e2 - w, north - s) > 10:
        seen += [(lon, lat, *t.transform(lon, lat)) for lon, lat in grid(w, s, e, north)]
    stated = accuracy if accuracy < 0 else spread(crs, accuracy, seen)
    axes = [x.direction for x in crs.axis_info]
    swapped = int(bool(axes) and axes[0] in ("north", "south"))
    kind, decimals = ("G", 10) if crs.is_geographic else ("P", 5)
    if re.search(r"\+(k=1\.0+\d*e-06|to_meter=\d{4})", proj4):
        decimals = 12  # metres are the fifth or sixth decimal of what such a system counts
    cells = [info.auth_name, info.code, kind, str(swapped), str(int(info.deprecated)), info.name, f"{w},{s},{e},{north}", f"{stated:g}", t.description.replace("\t", " "), proj4, ";".join(",".join(map(repr, p)) for p in points), str(base(crs)), str(datum(info.auth_name, info.code))]
    golden = []
    for _ in range(3):
        lon, lat = (round(v, 6) for v in at(chance.uniform(0.03, 0.97), chance.uniform(0.03, 0.97)))
        x, y, back_lon, back_lat = there_and_back(t, lon, lat)
        far = abs(back_lat - lat) > 1e-9 or abs(back_lon - lon) > 1e-9
        golden.append(f"{lon},{lat},{x:.{decimals}f},{y:.{decimals}f}" + (f",{back_lon:.11f},{back_lat:.11f}" if far else ""))
    return cells, f"{info.auth_name}:{info.code}\t{kind}\t{int(info.deprecated)}\t{accuracy:g}\t{';'.join(golden)}"

def main(same, candidates, golden):
    known = {("ESRI", line.split("\t")[0]) for line in open(same)}
    geographic = {}
    with open(candidates, "w") as out, open(golden, "w") as gold:
        for info in infos():
            if (info.auth_name, info.code) in known:
                continue
            try:
                cells, points = row(info, random.Random(f"{info.auth_name}:{info.code}"))
                if info.auth_name == "EPSG" and cells[2] == "G":
                    geographic[info.code] = cells
                out.write("\t".join(cells) + "\n")
                gold.write(points + "\n")
            except Exception as problem:
                kind = "G" if info.type == PJType.GEOGRAPHIC_2D_CRS else "P"
                out.write("\t".join([info.auth_name, info.code, "-", "0", str(int(info.deprecated)), info.name, "", "", kind, str(problem).replace("\n", " ").replace("\t", " ")[:80], "", "0", "0"]) + "\n")
                gold.write(f"{info.auth_name}:{info.code}\t{kind}\t{int(info.deprecated)}\t\t\n")
        for code, name, kind, deprecated, under in with_heights():
            if under in geographic:  # the area of use is that of the geographic one
                cells = list(geographic[under])
                cells[1:6] = [code, "H" if kind == "geographic 3D" else "C", "1" if kind == "geographic 3D" else "0", str(deprecated), name]
                if float(cells[7]) >= 0:
                    points = grid(*map(float, cells[6].split(",")))
                    cells[7] = f"{spread_with_heights(code, cells[2], float(cells[7]), cells[9], points):g}"
                out.write("\t".join(cells) + "\n")

if __name__ == "__main__":
    main(*sys.argv[1:4])
