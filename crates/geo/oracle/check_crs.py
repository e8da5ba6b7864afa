"""What PROJ calls a system, we know: every system of the table in every spelling, named as PROJ would name it."""
import collections, functools, json, re, subprocess, sys, warnings
import pyproj
from pyproj.enums import PJType

warnings.filterwarnings("ignore")
SPELLINGS = ["WKT1_ESRI", "WKT1_GDAL", "WKT2_2015", "WKT2_2019"]
KINDS = [PJType.PROJECTED_CRS, PJType.GEOGRAPHIC_2D_CRS]
wanted, texts = [], []
for authority in ("EPSG", "ESRI"):
    for info in pyproj.database.query_crs_info(auth_name=authority, pj_types=KINDS, allow_deprecated=True):
        crs = pyproj.CRS.from_authority(authority, info.code)
        spelt = []
        for version in SPELLINGS:
            try:
                spelt.append((version, crs.to_wkt(version)))
            except pyproj.exceptions.CRSError:
                pass
        esri = dict(spelt).get("WKT1_ESRI")
        if esri and len(wanted) % 50 == 0:
            # As somebody's own tool would call it, so that only the numbers tell; of some, because it takes long.
            spelt.append(("unnamed", re.sub(r'"[^"]*"', '"Custom"', esri, count=1)))
        spelt += [("PROJJSON", crs.to_json()), ("URN", f"urn:ogc:def:crs:{authority}::{info.code}")]
        for version, text in spelt:
            if text:
                wanted.append((f"{authority}:{info.code}", version, crs, bool(info.deprecated)))
                texts.append(json.dumps(text))
out = subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "crs_names"], input="\n".join(texts) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout.split()
assert len(out) == len(wanted), (len(out), len(wanted))
tally, shown, wrong = collections.Counter(), collections.defaultdict(list), []

def there(crs, other):
    """Whether PROJ puts the middle of the area at the same place, to a millimetre, by both."""
    area = crs.area_of_use
    if area is None:
        return False
    middle = (area.west + area.east) / 2, (area.south + area.north) / 2
    try:
        a, b = (pyproj.Transformer.from_crs(4326, one, always_xy=True).transform(*middle, errcheck=True) for one in (crs, other))
    except pyproj.exceptions.ProjError:
        return False
    near = 1e-3 if crs.is_projected else 1e-8
    return crs.is_projected == other.is_projected and all(abs(x - y) < near for x, y in zip(a, b))

@functools.cache
def same(name, code):
    """Whether another code names the same places: the same definition, whatever its age or datum's edition."""
    crs, other = pyproj.CRS.from_user_input(name), pyproj.CRS.from_user_input(code)
    if crs.equals(other, ignore_axis_order=True):
        return True
    plain = lambda c: re.sub(r" \+(type|towgs84|nadgrids)=\S+", "", c.to_proj4())
    words = lambda c: [word.partition("=")[::2] for word in plain(c).split()]
    def close(a, b):
        # False eastings in feet are rounded to a tenth of a millimetre.
        try:
            return abs(float(a) - float(b)) < (1e-3 if abs(float(a)) > 1e3 else 1e-8)
        except ValueError:
            return a == b
    try:
        ours, theirs = words(crs), words(other)
    except pyproj.exceptions.CRSError:
        return there(crs, other)
    return there(crs, other) or len(ours) == len(theirs) and all(a == c and close(b, d) for (a, b), (c, d) in zip(ours, theirs)) and crs.ellipsoid == other.ellipsoid

for (code, version, crs, deprecated), got in zip(wanted, out):
    if got == code:
        verdict = "as named"
    elif got == "-":
        verdict = "refused"
    elif same(code, got):
        verdict = "same system"
    elif version == "WKT1_ESRI" and crs.to_wkt(version) == pyproj.CRS.from_user_input(got).to_wkt(version):
        verdict = "same text"  # without a code nobody can tell the two apart
    else:
        verdict = "WRONG"
        wrong.append((code, version, got))
    tally[version, verdict] += 1
    if verdict in ("refused", "WRONG") and not deprecated and len(shown[version, verdict]) < 6:
        shown[version, verdict].append((code, got, crs.name))
for (version, verdict), count in sorted(tally.items()):
    print(f"{version:10} {verdict:12} {count}", *(shown.get((version, verdict)) or [])[:4])
for line in wrong[:20]: print("WRONG", *line)
sys.exit(bool(wrong))
