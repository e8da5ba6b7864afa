"""Writes N features (polygons of 8 to 12 vertices, 5 attributes) as newline-delimited GeoJSON, within the bounds west, south, east, north if they are given."""
import json, math, random, sys
count, path = int(sys.argv[1]), sys.argv[2]
west, south, east, north = map(float, sys.argv[3:7]) if len(sys.argv) > 6 else (-170, -80, 170, 80)
rng = random.Random(7)
with open(path, "w") as out:
    for i in range(count):
        x, y, n = rng.uniform(west, east), rng.uniform(south, north), rng.randint(7, 11)
        ring = []
        for k in range(n):
            a, r = 2 * math.pi * k / n, rng.uniform(0.0005, 0.001)
            ring.append([round(x + r * math.cos(a), 7), round(y + r * math.sin(a), 7)])
        ring.append(ring[0])
        out.write(json.dumps({"type": "Feature", "properties": {"id": i, "name": f"parcel {i}", "area": round(rng.uniform(1, 1e6), 3), "zone": rng.choice("ABCDE"), "built": rng.random() < 0.5}, "geometry": {"type": "Polygon", "coordinates": [ring]}}) + "\n")
