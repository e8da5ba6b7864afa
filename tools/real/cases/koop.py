"""Koop: an ArcGIS FeatureServer in Node, over GeoJSON.

Its numbers are JavaScript's, so integers beyond 2^53 are not compared; nor are truth values, which
ESRI JSON has not. A date is a time at midnight there.
"""

import os

import data
from check import fetch, sync_changes
from compare import Leniency
from servers.process import Process, free_port

QUICK = False
NPM = ("@koopjs/koop-core",)
PIP = ("pyproj",)
LENIENT = Leniency(zone=True, skip=("big", "flag"), midnight=True, places=7, digits=13)
SERVERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "servers")


class Suite:
    def __init__(self, world):
        self.folder = world.path("koop", "")
        for name in ("points_4326",):
            self.change(name, world.layers[name])
        port = free_port()
        env = {"NODE_PATH": os.path.join(world.node, "node_modules")}
        self.process = Process(["node", os.path.join(SERVERS, "koop.js"), str(port), self.folder], self.folder,
                               "/real/rest/services/points_4326/FeatureServer/0", env, port=port)
        self.url = self.process.url

    def layer(self, name):
        return f"{self.url}/real/rest/services/{name}/FeatureServer/0"

    def change(self, name, features):
        with open(os.path.join(self.folder, f"{name}.geojson"), "w", encoding="utf-8") as file:
            file.write(data.geojson(features, 4326))

    def stop(self):
        self.process.stop()


def esri(*more):
    return lambda s, w, n: fetch(
        w, n, "points_4326", s.layer("points_4326"), ("--profile", "esri", *more), LENIENT, epsg=4326, remote="")


def synced(s, w, n):
    layer = "points_4326"
    change = lambda features: s.change(layer, features)
    restore = lambda: change(w.layers[layer])
    # It guesses the types of fields from the first feature, so they must come from all pages.
    sync_changes(w, n, layer, s.layer(layer), "esri", LENIENT, change, restore, {"spool": True}, remote="")


CASES = {
    "ids": esri(),
    "offset": esri("--paging", "offset"),
    "geojson": esri("--body", "geojson"),
    "sync": synced,
}
