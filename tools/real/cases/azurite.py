"""Azurite: Azure's blobs, as a store and as files on a web server."""

import base64
import hashlib
import hmac
import os
import urllib.parse
import urllib.request
from email.utils import formatdate

import buckets
import data
from check import expect
from compare import Leniency, compare
from servers.process import Process
from tidegate import Failed, tidegate

QUICK = True
NPM = ("azurite",)
PIP = ("pyproj",)
ACCOUNT = "devstoreaccount1"
#: The well-known key of the emulator; it opens nothing else.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def put(url, path, query="", body=b"", **headers):
    """A signed request, by Azure's SharedKey."""
    headers = {n.replace("_", "-"): v for n, v in headers.items()}
    headers |= {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = "".join(f"{n}:{v}\n" for n, v in sorted(headers.items()))
    resource = f"/{ACCOUNT}/{ACCOUNT}{path}" + "".join(f"\n{p.replace('=', ':')}" for p in sorted(query.split("&")) if p)
    kind = "application/octet-stream"
    text = f"PUT\n\n\n{len(body) or ''}\n\n{kind}\n\n\n\n\n\n\n{lines}{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Type": kind}
    where = f"{url}/{ACCOUNT}{path}" + (f"?{query}" if query else "")
    urllib.request.urlopen(urllib.request.Request(where, body, headers, method="PUT"), timeout=20).close()


class Suite:
    def __init__(self, world):
        folder = world.path("azurite", "")
        binary = os.path.join(world.node, "node_modules", ".bin", "azurite-blob")
        command = [binary, "--blobHost", "127.0.0.1", "--blobPort", "{port}", "-l", folder, "--silent",
                   "--skipApiVersionCheck", "--disableTelemetry"]
        self.process = Process(command, folder)
        self.url = self.process.url
        put(self.url, "/public", "restype=container", x_ms_blob_public_access="container")
        put(self.url, f"/{buckets.BUCKET}", "restype=container")
        env = {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY}
        manifest = f"account: {ACCOUNT}, access_key: env:AZURE_STORAGE_KEY"
        self.bucket = buckets.Bucket(f"{self.url}/{ACCOUNT}", "az", (), env, manifest, md5=False)
        geopackage = world.path("azurite.gpkg")
        data.write_geopackage(geopackage, {"points_3035": world.layers["points_3035"]})
        with open(geopackage, "rb") as file:
            put(self.url, "/public/layer.gpkg", body=file.read(), x_ms_blob_type="BlockBlob")
        text = data.geojson(world.layers["points_4326"], 4326).encode()
        put(self.url, "/public/layer", body=text, x_ms_blob_type="BlockBlob",
            x_ms_blob_content_type="application/geo+json")

    def stop(self):
        self.process.stop()


def blob(s, w, n):
    place = w.place(n)
    out = os.path.join(place, "out.gpkg")
    tidegate("fetch", f"{s.url}/{ACCOUNT}/public/layer.gpkg", "-o", out, cwd=place).ok()
    expect(compare(w.layers["points_3035"], 3035, out, Leniency(zone=True), expected_epsg=3035))


def typed(s, w, n):
    """A name without an ending: the Content-Type decides."""
    place = w.place(n)
    out = os.path.join(place, "out.gpkg")
    url = f"{s.url}/{ACCOUNT}/public/layer"
    tidegate("fetch", url, "--profile", "file", "-o", out, cwd=place).ok()
    expect(compare(w.layers["points_4326"], 4326, out, Leniency(), expected_epsg=4326))


def sas(s, w, n):
    """A shared access signature instead of the key."""
    place = w.place(n)
    start, end = "2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
    fields = [ACCOUNT, "rwdlac", "b", "sco", start, end, "", "https,http", "2021-08-06", "", ""]
    text = "\n".join(fields)
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    token = urllib.parse.urlencode({
        "sv": "2021-08-06", "ss": "b", "srt": "sco", "sp": "rwdlac", "st": start, "se": end, "spr": "https,http",
        "sig": signature,
    })
    env = {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_SAS_TOKEN": token}
    bucket = buckets.Bucket(s.bucket.url, "az", (), env, md5=False)
    with open(os.path.join(place, "a"), "w", encoding="utf-8") as file:
        file.write("abc")
    bucket("put", "a", "--as", "sas/a", cwd=place).ok()
    if bucket("get", "sas/a", cwd=place).ok().out != "abc":
        raise Failed("what was put with a signature is not there")
    env["AZURE_STORAGE_SAS_TOKEN"] = token.replace("sig=", "sig=CANARY")
    refused = bucket("ls", cwd=place)
    if refused.code != 1 or "403" not in refused.err or "CANARY" in refused.err:
        raise Failed(f"a wrong signature: exit {refused.code}: {refused.err}")


def wrong_key(s, w, n):
    place = w.place(n)
    other = base64.b64encode(b"another key").decode()
    bucket = buckets.Bucket(s.bucket.url, "az", (), {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": other})
    refused = bucket("ls", cwd=place)
    if refused.code != 1 or "(403 Auth" not in refused.err:
        raise Failed(f"a wrong key: exit {refused.code}: {refused.err}")


CASES = {**buckets.CASES, "blob": blob, "typed": typed, "sas": sas, "wrong_key": wrong_key}
