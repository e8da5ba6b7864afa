"""The steps that cases are made of: fetch and compare, run twice and compare, expect a refusal."""

import json
import os
import statistics
import subprocess
import time

import data
from compare import compare
from tidegate import Failed, tidegate


def expect(differences):
    if differences:
        raise Failed("\n".join(differences))


def fetch(world, name, layer, url, arguments, lenient, epsg=None, output="out.gpkg", remote=None, features=None):
    """Fetches a layer and compares every cell. `epsg` is the system that the output must name;
    the layer's own by default."""
    place = world.place(name)
    path = os.path.join(place, output)
    named = ["--layer", remote or layer] if remote != "" else []
    outcome = tidegate("fetch", url, *named, "-o", path, "--format", "json", *arguments, cwd=place)
    outcome.ok()
    own = data.LAYERS[layer][0]
    expected = 4326 if output.endswith("json") else epsg or own
    expect(compare(features or world.layers[layer], own, path, lenient, expected_epsg=expected))
    return outcome


def refused(world, name, layer, url, arguments, *words, output="out.gpkg"):
    """Fetches what must be refused: with these words, and without an output."""
    place = world.place(name)
    path = os.path.join(place, output)
    outcome = tidegate("fetch", url, "--layer", layer, "-o", path, *arguments, cwd=place)
    if outcome.code == 0:
        raise Failed("expected a refusal; it ended with 0")
    missing = [w for w in words if w not in outcome.err]
    if missing:
        raise Failed(f"the refusal does not name {missing}: {outcome.err.strip()[-500:]}")
    if os.path.exists(path):
        raise Failed("there is an output")


def manifest(place, name, url, profile, layer, sink, source=None):
    body = {
        "pipeline": {
            "id": name.replace(".", "-").replace("_", "-"),
            "services": {"server": {"url": url, "profile": profile}},
            "source": {"service": "server", **({"layer": layer} if layer else {}), **(source or {})},
            "sink": sink,
            "retry_policy": {"max_attempts": 3, "base_delay_seconds": 0.5},
            "tolerance": {"max_null_rate": 1, "halt_on_geometry_invalid": False},
        }
    }
    path = os.path.join(place, "pipeline.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(body, file)
    return path


def run_twice(world, name, layer, url, profile, lenient, change, restore, source=None, remote=None, epsg=None):
    """Runs a pipeline, changes the layer on the server, and runs it again: by key the changed
    rows are written and nothing else, and `replace` leaves exactly the new layer."""
    place = world.place(name)
    own = data.LAYERS[layer][0]
    epsg = epsg or own
    before, after = world.layers[layer], data.later(world.layers[layer])
    served = lambda features: [f for f in features if f.geometry or lenient.null_geometry]
    upsert = {"file": "upsert.gpkg", "key": ["id"]}
    path = manifest(place, name, url, profile, remote or layer, upsert, source)
    first = tidegate("run", path, "--format", "json", cwd=place).ok()
    expect(compare(before, own, os.path.join(place, "upsert.gpkg"), lenient, expected_epsg=epsg))
    again = tidegate("run", path, "--format", "json", cwd=place).ok().result
    if again.get("updated") or again.get("inserted"):
        raise Failed(f"a second run over the same layer wrote: {again}")
    change(after)
    try:
        second = tidegate("run", path, "--format", "json", cwd=place).ok().result
        kept = {f.id: f for f in served(before)} | {f.id: f for f in served(after)}
        expect(compare(list(kept.values()), own, os.path.join(place, "upsert.gpkg"), lenient, expected_epsg=epsg))
        path = manifest(place, name, url, profile, remote or layer, {"file": "replace.gpkg"}, source)
        tidegate("run", path, "--format", "json", cwd=place).ok()
        expect(compare(after, own, os.path.join(place, "replace.gpkg"), lenient, expected_epsg=epsg))
    finally:
        restore()
    return first, second


def sync_changes(world, name, layer, url, profile, lenient, change, restore, source=None, remote=None, epsg=None):
    """Keeps a copy of a layer: the second run reads only what has changed, the third reads everything
    and deletes what is gone."""
    place = world.place(name)
    own = data.LAYERS[layer][0]
    epsg = epsg or own
    before, after = world.layers[layer], data.touched(world.layers[layer])
    served = lambda features: [f for f in features if f.geometry or lenient.null_geometry]
    out = os.path.join(place, "copy.gpkg")
    since = {"since": {"field": "stamp", "overlap_seconds": 0}}
    sink = {"file": "copy.gpkg", "key": ["id"], "mode": "sync"}
    remote = layer if remote is None else remote
    path = manifest(place, name, url, profile, remote, sink, {**since, **(source or {})})

    def run(*arguments):
        result = tidegate("run", path, "--format", "json", *arguments, cwd=place).ok().result
        if result["warnings"] and any("since" in w for w in result["warnings"]):
            raise Failed(f"the server ignored the condition: {result['warnings']}")
        return result

    run()
    expect(compare(before, own, out, lenient, expected_epsg=epsg))
    change(after)
    try:
        changed = {f.id for f in after if f.values.get("stamp", "") and f.values["stamp"] >= "2026"}
        second = run()
        # The record with the highest time of the first run comes once more.
        if not len(changed) <= second["read"] <= len(changed) + 5:
            raise Failed(f"{len(changed)} features have changed, {second['read']} were read ({second['scope']})")
        stays = {f.id: f for f in served(before)} | {f.id: f for f in served(after)}
        expect(compare(list(stays.values()), own, out, lenient, expected_epsg=epsg))
        third = run("--full")
        gone = len(served(before)) + 3 - len(served(after))
        if third["deleted"] != gone:
            raise Failed(f"{gone} features are gone, {third['deleted']} were deleted")
        expect(compare(after, own, out, lenient, expected_epsg=epsg))
    finally:
        restore()


def pace(world, name, fetch_arguments, ogr_arguments):
    """Prints how long `fetch` takes beside ogr2ogr, from the same server: the median of three.
    It is printed and not judged."""
    place = world.place(name)

    def median(command):
        times = []
        for turn in range(3):
            begin = time.monotonic()
            command(os.path.join(place, f"{turn}"))
            times.append(time.monotonic() - begin)
        return statistics.median(times)

    ours = median(lambda out: tidegate("fetch", *fetch_arguments, "-o", out + "-t.gpkg", cwd=place).ok())

    def ogr2ogr(out):
        done = subprocess.run(
            ["ogr2ogr", "-f", "GPKG", out + "-o.gpkg", *ogr_arguments], capture_output=True, text=True, timeout=120,
            check=False,
        )
        if done.returncode:
            raise Failed(f"ogr2ogr: {done.stderr[-300:]}")

    theirs = median(ogr2ogr)
    return f"fetch {ours:.1f} s, ogr2ogr {theirs:.1f} s: {ours / theirs:.2f} of its time"
