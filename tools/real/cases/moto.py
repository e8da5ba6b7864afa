"""moto: S3 in memory, and the service that lends the credentials of a role."""

import os
import shutil
import sqlite3
import sys
import urllib.request

import buckets
from servers.process import Process
from tidegate import Failed, tidegate

QUICK = True
PIP = ("moto[server]", "pyproj")


class Suite:
    def __init__(self, world):
        binary = os.path.join(os.path.dirname(sys.executable), "moto_server")
        self.process = Process([binary, "-H", "127.0.0.1", "-p", "{port}"], world.path("moto", ""), "/moto-api/")
        self.url = self.process.url
        buckets.make_bucket(self.url)
        self.bucket = buckets.s3(self.url)

    def stop(self):
        self.process.stop()


def role(s, w, n):
    """The token in a file is exchanged for the credentials of a role, which sign the requests."""
    place = w.place(n)
    token = os.path.join(place, "token")
    with open(token, "w", encoding="utf-8") as file:
        file.write("header.claims.signature\n")
    env = {
        "AWS_WEB_IDENTITY_TOKEN_FILE": token,
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_ENDPOINT_URL_STS": s.url,
    }
    bucket = buckets.Bucket(s.url, "s3", ("--region", "us-east-1", "--credentials", "web-identity"), env)
    bucket("put", token, "--as", "role/token", cwd=place).ok()
    bucket("get", "role/token", "-o", os.path.join(place, "got"), cwd=place).ok()
    env["AWS_ROLE_ARN"] = ""
    refused = bucket("ls", cwd=place)
    if refused.code != 2 or "AWS_ROLE_ARN" not in refused.err:
        raise Failed(f"without a role: exit {refused.code}: {refused.err}")


def odd(s, w, n):
    """Keys that are no paths are listed as they are."""
    place = w.place(n)
    for key in ("odd//double", "odd/../dots", "odd/plain"):
        request = urllib.request.Request(f"{s.url}/{buckets.BUCKET}/{key}", b"abc", method="PUT")
        urllib.request.urlopen(request, timeout=20).close()
    listed = s.bucket("ls", "odd", cwd=place).ok().out
    keys = [line.split("  ")[-1] for line in listed.splitlines()]
    if keys != ["odd/../dots", "odd//double", "odd/plain"]:
        raise Failed(f"listed are {keys}")


MANIFEST = """
pipeline:
  id: nightly
  dead_letters: { archive: "s3://%s/letters" }
  source: { file: in.geojsonl }
  steps:
    - coerce: { fields: { v: int } }
  sink: { file: out.gpkg, key: [code] }
  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429, 503] }
  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }
""" % buckets.BUCKET
RECORD = '{"type":"Feature","properties":{"code":"A","v":"x"},"geometry":null}\n'


def retention(s, w, n):
    """An open letter past its retention is archived in the bucket by the next run, read from there and compared, then deleted."""
    place = w.place(n)
    for name, text in (("m.yaml", MANIFEST), ("in.geojsonl", RECORD)):
        with open(os.path.join(place, name), "w", encoding="utf-8") as file:
            file.write(text)
    env = {**buckets.KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": s.url}
    tidegate("run", "m.yaml", cwd=place, env=env).ok(4)
    with sqlite3.connect(os.path.join(place, ".tidegate/letters.db")) as letters:
        letters.execute("UPDATE letter SET retain_ms = 1")
    with open(os.path.join(place, "in.geojsonl"), "w", encoding="utf-8") as file:
        file.write(RECORD.replace('"x"', '"1"'))
    tidegate("run", "m.yaml", cwd=place, env=env).ok()
    left = tidegate("dlq", "ls", "--closed", "--format", "json", cwd=place, env=env).ok()
    if left.result:
        raise Failed(f"the letter is still there: {left.out} {left.err}")
    listed = s.bucket("ls", "letters", cwd=place).ok().out
    if ".ndjson.zst" not in listed:
        raise Failed(f"archived is {listed}")


def anchor(s, w, n):
    """The head of an audit, kept in the bucket: an audit that was rolled back no longer holds it."""
    place = w.place(n)
    for name, text in (("m.yaml", MANIFEST), ("in.geojsonl", RECORD.replace('"x"', '"1"'))):
        with open(os.path.join(place, name), "w", encoding="utf-8") as file:
            file.write(text)
    env = {**buckets.KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": s.url}
    at = f"s3://{buckets.BUCKET}/anchors"
    tidegate("run", "m.yaml", cwd=place, env=env).ok()
    shutil.copytree(os.path.join(place, ".tidegate"), os.path.join(place, "before"))
    tidegate("run", "m.yaml", cwd=place, env=env).ok()
    tidegate("audit", "anchor", "--to", at, "--endpoint", s.url, cwd=place, env=env).ok()
    check = ("audit", "verify", "--anchor", at, "--endpoint", s.url)
    tidegate(*check, cwd=place, env=env).ok()
    shutil.rmtree(os.path.join(place, ".tidegate"))
    shutil.move(os.path.join(place, "before"), os.path.join(place, ".tidegate"))
    tidegate("audit", "verify", cwd=place, env=env).ok()
    tidegate(*check, cwd=place, env=env).ok(1)


CASES = {**buckets.CASES, "role": role, "odd": odd, "retention": retention, "anchor": anchor}
