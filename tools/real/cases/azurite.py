"""Azurite: Azure's blobs. The program speaks no Azure, but a public blob is a file on a web server."""

import base64
import hashlib
import hmac
import os
import urllib.request
from email.utils import formatdate

import data
from check import expect
from compare import Leniency, compare
from servers.process import Process
from tidegate import Failed, tidegate

QUICK = False
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


def foreign(s, w, n):
    place = w.place(n)
    outcome = tidegate("store", "ls", "az://public", cwd=place)
    if outcome.code != 2 or "s3://" not in outcome.err:
        raise Failed(f"az:// is not refused with what there is: exit {outcome.code}: {outcome.err[-300:]}")


CASES = {"blob": blob, "typed": typed, "foreign": foreign}
