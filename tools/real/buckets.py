"""Cases for every object store: objects byte by byte, layers cell by cell, credentials.

One suite, which S3, Azure and Google Cloud Storage pass. A `Bucket` says how each is reached.
"""

import hashlib
import json
import os
import random
from dataclasses import dataclass, field

import data
from check import expect
from compare import Leniency, compare, read_geopackage
from tidegate import Failed, tidegate

KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
BUCKET = "real"


@dataclass
class Bucket:
    """How a bucket is reached: its scheme, options and environment, and the same in a manifest."""

    url: str
    scheme: str = "s3"
    options: tuple = ()
    env: dict = field(default_factory=dict)
    manifest: str = ""
    #: Whether its ETags are MD5 sums, so that a checksum is compared after a put.
    md5: bool = True
    #: Whether it knows the last bytes of an object.
    suffix: bool = True

    @property
    def name(self):
        return f"{self.scheme}://{BUCKET}"

    def __call__(self, verb, *rest, cwd, base=""):
        at = ("--endpoint", self.url, *self.options)
        store = f"{self.name}/{base}" if base else self.name
        return tidegate("store", verb, store, *rest, *at, cwd=cwd, env=self.env)


def s3(url, **more):
    keys = "access_key: env:AWS_ACCESS_KEY_ID, secret_key: env:AWS_SECRET_ACCESS_KEY"
    return Bucket(url, "s3", ("--region", "us-east-1"), KEYS, f"region: us-east-1, {keys}", **more)


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


def objects(bucket, world, name):
    """put, ls, get, cp and rm: what comes back is what was sent."""
    place = world.place(name)
    store = lambda verb, *rest: bucket(verb, *rest, cwd=place, base="base")
    wrong = []
    for seed, (key, size) in enumerate(OBJECTS.items()):
        if key.startswith("many/"):
            continue
        path = os.path.join(place, "sent")
        with open(path, "wb") as file:
            file.write(bytes_of(size, seed))
        said = store("put", path, "--as", key, *(("--verify",) if size > 1000 else ())).ok().err
        if "the store confirmed the sizes" not in said:
            wrong.append(f"put of {key!r} says {said!r}")
        if bucket.md5 and "checksums" not in said:
            wrong.append(f"no checksum of {key!r} is compared: {said!r}")
    os.makedirs(os.path.join(place, "many"))
    for seed, (key, size) in enumerate(OBJECTS.items()):
        if key.startswith("many/"):
            with open(os.path.join(place, key), "wb") as file:
                file.write(bytes_of(size, seed))
    many = sorted(os.path.join("many", f) for f in os.listdir(os.path.join(place, "many")))
    store("put", *many, "--under", "many").ok()
    listed = json.loads(store("ls", "--format", "json").ok().out)
    have = {o["key"]: o["size"] for o in listed}
    if have != OBJECTS:
        wrong.append(f"ls differs: {sorted(set(have.items()) ^ set(OBJECTS.items()))[:5]}")
    if [o["key"] for o in listed] != sorted(have, key=lambda key: key.encode()):
        wrong.append("ls is not in the order of the keys")
    folder = [line.split("  ", 1)[1] for line in store("ls", "many").ok().out.splitlines()]
    if len(folder) != 60:
        wrong.append(f"ls many shows {len(folder)} objects")
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
    for asked, want in (("10..20", slice(10, 20)), ("990..", slice(990, None)), ("..10", slice(-10, None))):
        if asked == "..10" and not bucket.suffix:
            continue
        part = os.path.join(place, "part")
        store("get", "plain.bin", "--range", asked, "-o", part).ok()
        with open(part, "rb") as file:
            if file.read() != bytes_of(1000, 0)[want]:
                wrong.append(f"the range {asked} differs")
    store("cp", "plain.bin", "copies/plain ö.bin").ok()
    store("get", "copies/plain ö.bin", "-o", os.path.join(place, "copy")).ok()
    with open(os.path.join(place, "copy"), "rb") as file:
        if file.read() != bytes_of(1000, 0):
            wrong.append("a copy differs")
    store("rm", "plain.bin", "never-there").ok()
    gone = store("get", "plain.bin", "-o", os.path.join(place, "gone"))
    if gone.code != 1 or "NOT_FOUND" not in gone.err:
        wrong.append(f"plain.bin after rm: exit {gone.code}: {gone.err}")
    expect(wrong)


def missing(bucket, world, name):
    """A bucket that does not exist is named."""
    place = world.place(name)
    with open(os.path.join(place, "a"), "w", encoding="utf-8") as file:
        file.write("a")
    at = ("--endpoint", bucket.url, *bucket.options)
    where = f"{bucket.scheme}://nowhere"
    for verb in (("put", where, "a"), ("ls", where)):
        said = tidegate("store", *verb, *at, cwd=place, env=bucket.env)
        if said.code != 1 or f"{where} does not exist: 404" not in said.err:
            raise Failed(f"{verb}: exit {said.code}: {said.err}")


def layer(bucket, world, name):
    """A pipeline from a GeoPackage in the bucket to another: every cell, NULL geometries too."""
    place = world.place(name)
    at = ("--endpoint", bucket.url, *bucket.options)
    geopackage = world.path("bucket.gpkg")
    if not os.path.exists(geopackage):
        data.write_geopackage(geopackage, {"polygons_31468": world.layers["polygons_31468"]})
    bucket("put", geopackage, "--as", "in/layer.gpkg", cwd=place).ok()
    out = os.path.join(place, "out.gpkg")
    tidegate("fetch", f"{bucket.name}/in/layer.gpkg", "-o", out, *at, cwd=place, env=bucket.env).ok()
    # GeoPackage knows no time without a zone.
    lenient = Leniency(zone=True)
    expect(compare(world.layers["polygons_31468"], 31468, out, lenient, expected_epsg=31468))
    text = os.path.join(place, "pipeline.yaml")
    store = f'{{endpoint: "{bucket.url}", {bucket.manifest}}}'
    with open(text, "w", encoding="utf-8") as file:
        file.write(
            f"""
pipeline:
  id: bucket
  source: {{ file: "{bucket.name}/in/layer.gpkg", store: {store} }}
  sink: {{ file: "{bucket.name}/out/layer.gpkg", store: {store} }}
  retry_policy: {{ max_attempts: 3, base_delay_seconds: 0.5 }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
"""
        )
    tidegate("run", text, cwd=place, env=bucket.env).ok()
    back = os.path.join(place, "back.gpkg")
    bucket("get", "out/layer.gpkg", "-o", back, cwd=place).ok()
    expect(compare(world.layers["polygons_31468"], 31468, back, lenient, expected_epsg=31468))
    if len(read_geopackage(back)[0]) != data.COUNT:
        raise Failed("the number of rows differs")


#: What every store passes.
CASES = {
    "objects": lambda s, w, n: objects(s.bucket, w, n),
    "missing": lambda s, w, n: missing(s.bucket, w, n),
    "layer": lambda s, w, n: layer(s.bucket, w, n),
}


def make_bucket(url, name=BUCKET):
    """The program makes no buckets; a plain PUT does where nothing is checked."""
    import urllib.request

    request = urllib.request.Request(f"{url}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=20).close()
