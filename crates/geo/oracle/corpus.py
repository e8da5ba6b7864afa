"""Geometries that are hard to judge, in classes, from a seed."""
import math, random
import shapely
from shapely import Point, LineString, Polygon, MultiPolygon, MultiPoint, MultiLineString, GeometryCollection

def raw_polygon(*rings):
    return Polygon(rings[0], rings[1:])

def close(ring):
    return ring + [ring[0]]

def star(rng, cx, cy, r, n):
    angles = sorted(rng.uniform(0, 2 * math.pi) for _ in range(n))
    return close([(cx + rng.uniform(.3, 1) * r * math.cos(a), cy + rng.uniform(.3, 1) * r * math.sin(a)) for a in angles])

def grid_ring(rng, n, size, x=0, y=0):
    return close([(x + rng.randint(0, size), y + rng.randint(0, size)) for _ in range(n)])

def box(x, y, w, h, ccw=True):
    ring = [(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)]
    return ring if ccw else ring[::-1]

def transformed(rng, g):
    scale = rng.choice([1, 1, 1, 1e-9, 1e-3, 1e6, 1e12, 0.1, 1 / 3])
    dx, dy = rng.choice([(0, 0), (0, 0), (1e6, -1e6), (0.1, 0.3), (123456.789, 987654.321)])
    return shapely.transform(g, lambda a: a * scale + [dx, dy])

def cases(seed, per_class):
    rng = random.Random(seed)
    def star_polygon(): return raw_polygon(star(rng, 0, 0, 10, rng.randint(3, 30)))
    def grid_polygon(): return raw_polygon(grid_ring(rng, rng.randint(3, 8), rng.choice([2, 3, 5, 20])))
    def bowtie(): return raw_polygon(close([(0, 0), (rng.randint(1, 5), rng.randint(1, 5)), (rng.randint(1, 5), 0), (0, rng.randint(1, 5))]))
    def grid_with_holes(): return raw_polygon(box(0, 0, 6, 6), *[grid_ring(rng, 3, 3, rng.randint(0, 4), rng.randint(0, 4)) for _ in range(rng.randint(1, 3))])
    def box_holes():
        n = rng.randint(1, 5)
        return raw_polygon(box(0, 0, 8, 8, rng.random() < .5), *[box(rng.randint(0, 7), rng.randint(0, 7), rng.randint(1, 3), rng.randint(1, 3), rng.random() < .5) for _ in range(n)])
    def diamond_holes():
        def d(x, y, r): return close([(x - r, y), (x, y - r), (x + r, y), (x, y + r)])
        return raw_polygon(box(0, 0, 8, 8), *[d(rng.randint(1, 7), rng.randint(1, 7), rng.choice([1, 1, 2])) for _ in range(rng.randint(1, 6))])
    def touching_chain():
        rings, x = [], 0
        for _ in range(rng.randint(2, 5)):
            w = rng.randint(1, 3)
            rings.append(close([(x, 4), (x + w / 2, 3), (x + w, 4), (x + w / 2, 5)]))
            x += w + rng.choice([0, 0, 0, 1])
        rng.shuffle(rings)
        return raw_polygon(box(0, 0, rng.choice([x, x, x + 1, 8]), 8), *rings)
    def same_point_holes():
        n = rng.randint(2, 5)
        return raw_polygon(box(-10, -10, 20, 20), *[close([(0, 0), (5 * math.cos(k), 5 * math.sin(k)), (5 * math.cos(k + .4), 5 * math.sin(k + .4))]) for k in rng.sample([0, 1, 2, 3, 4, 5], n)])
    def spike():
        ring = star(rng, 0, 0, 10, rng.randint(4, 9))
        at = rng.randrange(1, len(ring) - 1)
        p = ring[at]
        q = (p[0] * rng.choice([2, .5, -1]), p[1] * rng.choice([2, .5, -1]))
        return raw_polygon(ring[:at + 1] + [q] + ring[at:])
    def doubled_edge():
        ring = box(0, 0, 4, 4)
        at = rng.randrange(1, 4)
        return raw_polygon(ring[:at + 1] + [ring[at - 1], ring[at]] + ring[at + 1:])
    def collinear():
        n = rng.randint(3, 6)
        return raw_polygon(close([(k, 2 * k) for k in rng.sample(range(10), n)]))
    def repeated():
        ring = star(rng, 0, 0, 5, rng.randint(3, 8))
        return raw_polygon([p for p in ring for _ in range(rng.randint(1, 3))])
    def near():
        e = rng.choice([1e-15, 1e-12, 5e-16, 0, -1e-15, 2.220446049250313e-16])
        return raw_polygon(close([(0, 0), (1, 0), (1, 1), (0.5, e), (0, 1)]))
    def near_hole():
        e = rng.choice([1e-15, 1e-12, 0, -1e-15])
        return raw_polygon(box(0, 0, 3, 3), close([(e, 1), (1, .5), (1, 1.5)]), close([(1, 1 + e), (3, .9), (2, 2)]))
    def self_touch():
        return raw_polygon(close([(0, 0), (4, 0), (4, 4), (2, rng.choice([0, 1, 2])), (0, 4)]))
    def hole_is_shell(): return raw_polygon(box(0, 0, 4, 4), box(0, 0, 4, 4) if rng.random() < .3 else box(rng.randint(-1, 1), rng.randint(-1, 1), 4, 4))
    def multi():
        return MultiPolygon([raw_polygon(box(rng.randint(0, 6), rng.randint(0, 6), rng.randint(1, 4), rng.randint(1, 4))) for _ in range(rng.randint(2, 4))])
    def multi_in_hole():
        inner = rng.choice([box(2, 2, 4, 4), box(1, 1, 6, 6), box(3, 3, 1, 1), close([(1, 4), (4, 1), (7, 4), (4, 7)]), close([(1, 1), (7, 1), (4, 4)]), close([(0, 0), (2, 2), (2, 3)])])
        return MultiPolygon([raw_polygon(box(0, 0, 8, 8), box(1, 1, 6, 6)), raw_polygon(inner)][::rng.choice([1, -1])])
    def multi_touch():
        return MultiPolygon([raw_polygon(grid_ring(rng, 3, 4)) for _ in range(rng.randint(2, 4))])
    def multi_star(): return MultiPolygon([raw_polygon(star(rng, rng.uniform(0, 30), rng.uniform(0, 30), rng.uniform(1, 12), rng.randint(3, 12))) for _ in range(rng.randint(2, 4))])
    def big(): return raw_polygon(star(rng, 0, 0, 10, rng.randint(200, 600)))
    def big_flaw():
        ring = star(rng, 0, 0, 10, rng.randint(60, 300))
        i, j = rng.randrange(1, len(ring) - 1), rng.randrange(1, len(ring) - 1)
        ring[i], ring[j] = ring[j], ring[i]
        return raw_polygon(ring)
    def huge(): return shapely.transform(grid_polygon(), lambda a: a * rng.choice([1e100, 1e-100, 1e15]))
    def line(): return LineString([(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(rng.randint(2, 6))])
    def multi_line(): return MultiLineString([[(rng.randint(0, 4), rng.randint(0, 4)) for _ in range(rng.randint(2, 4))] for _ in range(rng.randint(1, 3))])
    def points(): return MultiPoint([(rng.randint(0, 3), rng.randint(0, 3)) for _ in range(rng.randint(0, 4))])
    def collection(): return GeometryCollection([rng.choice([star_polygon, bowtie, line, points, multi, Point, Polygon])() for _ in range(rng.randint(0, 3))])
    for make in [star_polygon, grid_polygon, bowtie, grid_with_holes, box_holes, diamond_holes, touching_chain, same_point_holes, spike, doubled_edge, collinear, repeated, near, near_hole, self_touch, hole_is_shell, multi, multi_in_hole, multi_touch, multi_star, big, big_flaw, huge, line, multi_line, points, collection]:
        for _ in range(per_class):
            g = make()
            yield make.__name__, g if make in (huge, near, near_hole) else transformed(rng, g)
