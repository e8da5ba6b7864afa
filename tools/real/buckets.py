"""Cases for anything that speaks S3: objects byte by byte, layers cell by cell."""

import hashlib
import os
import random

import data
from check import expect
from compare import Leniency, compare, read_geopackage
from tidegate import Failed, tidegate

KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
BUCKET = "real"


def bytes_of(size, seed):
    return random.Random(seed).randbytes(size)


#: Names that stores and clients encode differently, empty objects, one of several parts.
OBJECTS = {
    "plain.bin": 1000,
    "empty": 0,
    "a b+c&d=e.txt": 37,
    "ümläut/東京.json": 500,
    "percent%20sign/x": 11,
    "large.bin": 11 * 1024 * 1024,
    **{f"many/{n:04d}.bin": n for n in range(60)},
}


def objects(url, world, name):
    """put, ls, get, cp and rm: what comes back is what was sent."""
    place = world.place(name)
    at = ("--endpoint", url, "--region", "us-east-1")
    store = lambda verb, *rest: tidegate("store", verb, f"s3://{BUCKET}/base", *rest, *at, cwd=place, env=KEYS)
    wrong = []
    for seed, (key, size) in enumerate(OBJECTS.items()):
        if key.startswith("many/"):
            continue
        path = os.path.join(place, "sent")
        with open(path, "wb") as file:
            file.write(bytes_of(size, seed))
        store("put", path, "--as", key).ok()
    os.makedirs(os.path.join(place, "many"))
    for seed, (key, size) in enumerate(OBJECTS.items()):
        if key.startswith("many/"):
            with open(os.path.join(place, key), "wb") as file:
                file.write(bytes_of(size, seed))
    many = sorted(os.path.join("many", f) for f in os.listdir(os.path.join(place, "many")))
    store("put", *many, "--under", "many").ok()
    listed = store("ls").ok().out
    for key in OBJECTS:
        if key not in listed:
            wrong.append(f"ls does not show {key!r}")
    for seed, (key, size) in enumerate(OBJECTS.items()):
        if key.startswith("many/") and not key.endswith("7.bin"):
            continue
        path = os.path.join(place, "got")
        store("get", key, "-o", path).ok()
        with open(path, "rb") as file:
            have, want = file.read(), bytes_of(size, seed)
        if have != want:
            digest = lambda b: hashlib.sha256(b).hexdigest()[:12]
            wrong.append(f"{key!r}: {len(want)} bytes {digest(want)} became {len(have)} bytes {digest(have)}")
    store("cp", "plain.bin", "copies/plain ö.bin").ok()
    store("get", "copies/plain ö.bin", "-o", os.path.join(place, "copy")).ok()
    with open(os.path.join(place, "copy"), "rb") as file:
        if file.read() != bytes_of(1000, 0):
            wrong.append("a copy differs")
    store("rm", "plain.bin").ok()
    if store("get", "plain.bin", "-o", os.path.join(place, "gone")).code == 0:
        wrong.append("plain.bin is there after rm")
    expect(wrong)


def layer(url, world, name):
    """A pipeline from a GeoPackage in the bucket to another: every cell, NULL geometries too."""
    place = world.place(name)
    at = ("--endpoint", url, "--region", "us-east-1")
    geopackage = world.path("bucket.gpkg")
    if not os.path.exists(geopackage):
        data.write_geopackage(geopackage, {"polygons_31468": world.layers["polygons_31468"]})
    tidegate("store", "put", f"s3://{BUCKET}", geopackage, "--as", "in/layer.gpkg", *at, cwd=place, env=KEYS).ok()
    out = os.path.join(place, "out.gpkg")
    tidegate("fetch", f"s3://{BUCKET}/in/layer.gpkg", "-o", out, *at, cwd=place, env=KEYS).ok()
    # GeoPackage knows no time without a zone.
    lenient = Leniency(zone=True)
    expect(compare(world.layers["polygons_31468"], 31468, out, lenient, expected_epsg=31468))
    text = os.path.join(place, "pipeline.yaml")
    store = f'{{endpoint: "{url}", region: us-east-1, access_key: env:AWS_ACCESS_KEY_ID, secret_key: env:AWS_SECRET_ACCESS_KEY}}'
    with open(text, "w", encoding="utf-8") as file:
        file.write(
            f"""
pipeline:
  id: bucket
  source: {{ file: "s3://{BUCKET}/in/layer.gpkg", store: {store} }}
  sink: {{ file: "s3://{BUCKET}/out/layer.gpkg", store: {store} }}
  retry_policy: {{ max_attempts: 3, base_delay_seconds: 0.5 }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
"""
        )
    tidegate("run", text, cwd=place, env=KEYS).ok()
    back = os.path.join(place, "back.gpkg")
    tidegate("store", "get", f"s3://{BUCKET}", "out/layer.gpkg", "-o", back, *at, cwd=place, env=KEYS).ok()
    expect(compare(world.layers["polygons_31468"], 31468, back, lenient, expected_epsg=31468))
    if len(read_geopackage(back)[0]) != data.COUNT:
        raise Failed("the number of rows differs")


def make_bucket(url):
    """The program makes no buckets; a plain PUT does where nothing is checked."""
    import urllib.request

    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=20).close()
