"""Transformations between pairs of systems, compared with PROJ.

On one datum there is no datum shift: the result must be within a millimetre of the known position, and the stated
accuracy 0. The known position is where PROJ projects the geographic position that the pair started from. PROJ's own
transformation of the pair is not the reference, because the inverse of its equal-area projections (before 9.7) is off
by up to 6 mm; how often that happens is printed. On two datums, PROJ's result must be within our stated accuracy plus
PROJ's. Heights and geocentric coordinates count in both, the former only if a system has them.

Pairs: in every datum each system with its neighbour in the order of codes and with the geographic one; every system
with heights from and to the geographic one and WGS 84; and systems of different datums at random. A sample of 4000
by default, because PROJ is slow to choose an operation. Arguments: folder, number of pairs, seed.
"""
import collections, math, pathlib, random, sqlite3, subprocess, sys, warnings
import pyproj

warnings.filterwarnings("ignore")
pyproj.network.set_network_enabled(False)
db = sqlite3.connect(pathlib.Path(pyproj.datadir.get_data_dir()) / "proj.db")
chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 18)

systems = {}  # code: (datum, kind, area)
sql = """SELECT c.code, g.datum_code, c.kind, e.west_lon, e.south_lat, e.east_lon, e.north_lat FROM
  (SELECT auth_name, code, geodetic_crs_auth_name AS base_auth, geodetic_crs_code AS base, 'projected' AS kind, 'projected_crs' AS tab FROM projected_crs WHERE deprecated = 0 AND auth_name = 'EPSG'
   UNION ALL SELECT auth_name, code, auth_name, code, type, 'geodetic_crs' FROM geodetic_crs WHERE deprecated = 0 AND auth_name = 'EPSG') c
  JOIN geodetic_crs g ON g.auth_name = c.base_auth AND g.code = c.base
  JOIN usage u ON u.object_table_name = c.tab AND u.object_auth_name = 'EPSG' AND u.object_code = c.code
  JOIN extent e ON e.auth_name = u.extent_auth_name AND e.code = u.extent_code"""
for code, datum, kind, w, s, e, n in db.execute(sql):
    systems.setdefault(int(code), (datum, kind, (w, s, e, n)))
by_datum = collections.defaultdict(list)
for code, (datum, kind, area) in sorted(systems.items()):
    by_datum[datum].append(code)

pairs = set()
for codes in by_datum.values():
    plain = next((c for c in codes if systems[c][1] == "geographic 2D"), None)
    for a, b in zip(codes, codes[1:]):
        pairs |= {(a, b), (b, a)}
    for c in codes:
        if plain and c != plain:
            pairs |= {(c, plain), (plain, c)}
        if systems[c][1] in ("geocentric", "geographic 3D"):
            pairs |= {(c, 4326), (4326, c), (c, 4979), (4979, c), (c, 4978), (4978, c)}
other = sorted(systems)
while len(pairs) < 35000:
    a, b = chance.choice(other), chance.choice(other)
    (w, s, e, n), (W, S, E, N) = systems[a][2], systems[b][2]
    if a != b and max(w, W) < min(e, E) and max(s, S) < min(n, N):
        pairs.add((a, b))

pairs = chance.sample(sorted(pairs), int(sys.argv[2]) if len(sys.argv) > 2 else 4000)

def inside(a, b):
    """A place in both areas, else in the first."""
    (w, s, e, n), (W, S, E, N) = systems[a][2], systems[b][2]
    e, E = e if e >= w else e + 360, E if E >= W else E + 360
    low, high = (max(w, W), max(s, S)), (min(e, E), min(n, N))
    if low[0] >= high[0] or low[1] >= high[1]:
        low, high = (w, s), (e, n)
    lon = chance.uniform(low[0] + (high[0] - low[0]) * 0.1, high[0] - (high[0] - low[0]) * 0.1)
    return lon - 360 if lon > 180 else lon, chance.uniform(low[1] + (high[1] - low[1]) * 0.1, high[1] - (high[1] - low[1]) * 0.1)

plain_of = {datum: next((c for c in codes if systems[c][1] == "geographic 2D"), None) for datum, codes in by_datum.items()}
lines, wanted = [], []
for a, b in sorted(pairs):
    base = plain_of[systems[a][0]]
    if base is None:
        continue
    height = chance.choice((0, 250, 3000))
    try:
        place = inside(a, b)
        start = pyproj.Transformer.from_crs(base, a, always_xy=True).transform(*place, height)
        way = pyproj.Transformer.from_crs(a, b, always_xy=True)
        end = way.transform(*start)
        stated = way.get_last_used_operation().accuracy
        known = None
        if systems[a][0] == systems[b][0]:
            known = (*place, height) if b == base else pyproj.Transformer.from_crs(base, b, always_xy=True).transform(*place, height)
    except Exception:
        continue
    if not all(map(math.isfinite, start + end)):
        continue
    lines.append(f"EPSG:{a} EPSG:{b} " + " ".join(map(repr, start)))
    wanted.append((a, b, end, stated, known))

def apart(b, found, end):
    """The distance of two positions in system b, in metres."""
    if systems[b][1].startswith("geographic"):
        around = (found[0] - end[0]) % 360
        off = math.hypot(min(around, 360 - around) * math.cos(math.radians(end[1])), found[1] - end[1]) * 111320
    else:
        unit = pyproj.CRS.from_epsg(b).axis_info[0].unit_conversion_factor
        off = math.hypot(found[0] - end[0], found[1] - end[1]) * unit
    return max(off, abs(found[2] - end[2]))

out = subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "crs_ways"], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
assert len(out) == len(wanted), (len(out), len(wanted))
tally, wrong, worst, inexact = collections.Counter(), [], collections.Counter(), []
for (a, b, end, promised, known), line, asked in zip(wanted, out, lines):
    same = systems[a][0] == systems[b][0]
    tall = {systems[a][1], systems[b][1]} & {"geocentric", "geographic 3D"}
    group = ("one datum" if same else "two datums") + (", with heights" if tall else "")
    if line == "-":
        tally[group, "refused"] += 1
        continue
    *found, stated = line.split()
    found = tuple(map(float, found))
    if not same and not tall:
        # Between systems without heights PROJ changes a height on some ways, which then means nothing.
        end = (*end[:2], found[2], *end[3:])
    off = apart(b, found, known if same else end)
    if same and apart(b, end, known) > 0.001:
        inexact.append((apart(b, end, known), a, b))
    if same:
        verdict = "within 1 mm" if off <= 0.001 and stated == "0" else "WRONG"
        worst[group] = max(worst[group], off) if verdict != "WRONG" else worst[group]
    elif stated == "?" or promised < 0:
        verdict = "ballpark"
    else:
        verdict = "within what is stated" if off <= float(stated) + promised + 0.001 else "WRONG"
    if verdict == "WRONG":
        wrong.append(f"{asked}: {line}, PROJ {end} stated {promised}, {off:.3f} m apart")
    tally[group, verdict] += 1
for (group, verdict), count in sorted(tally.items()):
    print(f"{group:28} {verdict:22} {count}")
for group, metres in worst.items():
    print(f"{group:28} at most {metres:.2g} m apart")
if inexact:
    print(f"PROJ itself is more than 1 mm off in {len(inexact)} pairs, at most {max(inexact)[0] * 1000:.1f} mm (EPSG:{max(inexact)[1]} to EPSG:{max(inexact)[2]})")
for line in wrong[:20]:
    print("WRONG", line)
sys.exit(bool(wrong))
