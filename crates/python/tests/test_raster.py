"""raster: what the commands write, read by rasterio."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import time

import numpy
import pytest
import rasterio
import rasterio.features
import rasterio.transform
import rasterio.warp
import tidegate
from tidegate import _core, raster

BOX = {"type": "Polygon", "coordinates": [[[10.2, 45.2], [10.6, 45.2], [10.6, 45.8], [10.2, 45.8], [10.2, 45.2]]]}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scene(path, bands=1, side=100, left=10.0, dtype="int16", nodata=-1):
    """A raster of 1 degree from (left, 45) with values that all differ; returns them."""
    count = bands * side * side
    values = numpy.arange(count).reshape(bands, side, side).astype(dtype)
    place = rasterio.transform.from_bounds(left, 45, left + 1, 46, side, side)
    with rasterio.open(
        path, "w", driver="GTiff", width=side, height=side, count=bands, dtype=dtype, crs="EPSG:4326",
        transform=place, nodata=nodata,
    ) as file:
        file.write(values)
    return values


def features(path, *records):
    listed = [{"type": "Feature", "properties": of, "geometry": shape} for shape, of in records]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": listed}))
    return path


def read(path):
    with rasterio.open(path) as file:
        return file.read()


def test_info_and_validate(here):
    scene("scene.tif", bands=2, side=20, dtype="uint8", nodata=255)
    told = raster.info("scene.tif")
    assert (told.width, told.height, told.count, told.crs) == (20, 20, 2, "EPSG:4326")
    assert (told.bbox, told.nodata, told["sample"]) == ((10.0, 45.0, 11.0, 46.0), 255.0, "uint8")
    scene(here / "large.tif", side=600)
    plain = raster.validate(here / "large.tif")
    assert not plain and not plain.cog and plain["errors"] == [] and plain.problems
    assert raster.validate("large.tif", any=True, full=True)
    done = raster.cog("large.tif", "cog.tif", compress="zstd", block=256)
    assert (done.output, done["overviews"], done.exit_code) == ("cog.tif", 2, 0)
    checked = raster.validate("cog.tif", full=True)
    assert checked and checked.cog and checked["unpacked"] == checked["blocks"] == done["tiles"]
    assert (read("cog.tif") == read("large.tif")).all()


def test_warp(here):
    values = scene("scene.tif", dtype="float64", nodata=None)
    done = raster.warp("scene.tif", "half.tif", resolution=0.02, method="average", threads=2)
    assert (done["width"], done["height"], done["bbox"]) == (50, 50, [10.0, 45.0, 11.0, 46.0])
    means = values.reshape(1, 50, 2, 50, 2).mean(axis=(2, 4))
    numpy.testing.assert_allclose(read("half.tif"), means)
    done = raster.warp("scene.tif", "mercator.tif", to_crs="EPSG:3857", method="bilinear", nodata=-9999)
    assert done["crs"] == "EPSG:3857" and any("EPSG:3857" in line for line in done.messages)
    with rasterio.open("mercator.tif") as file, rasterio.open("scene.tif") as given:
        place, width, height = rasterio.warp.calculate_default_transform(
            given.crs, "EPSG:3857", given.width, given.height, *given.bounds
        )
        assert (file.crs.to_epsg(), file.nodata, file.width, file.height) == (3857, -9999, width, height)
        numpy.testing.assert_allclose(list(file.transform), list(place))
    sized = raster.warp("scene.tif", "sized.tif", extent=(10.25, 45.5, 10.75, 46.0), size=(50, 0))
    assert (sized["width"], sized["height"]) == (50, 50)
    assert (read("sized.tif") == values[:, :50, 25:75]).all()


def test_clip_and_rasterize(here):
    values = scene("scene.tif")
    raster.clip("scene.tif", "box.tif", box=(10.2, 45.2, 10.6, 45.8))
    assert (read("box.tif") == values[:, 20:80, 20:60]).all()
    parcels = features(here / "parcels.geojson", (BOX, {"zone": 3, "name": "a"}), (BOX, {"zone": 7, "name": "b"}))
    kept = raster.clip("scene.tif", "kept.tif", features=parcels, where="name = 'a'", extent="keep")
    assert kept["features"] == {"used": 1, "left_out": 1, "rejected": 0} and kept.rejected == 0
    inside = rasterio.features.rasterize([BOX], out_shape=(100, 100), transform=rasterio.open("scene.tif").transform)
    assert (read("kept.tif") == numpy.where(inside, values, -1)).all()
    done = raster.rasterize(parcels, "zones.tif", attribute="zone", type="uint8", like="scene.tif")
    assert done.raise_for_status() is done
    assert (read("zones.tif")[0] == inside * 7).all()
    raster.rasterize(parcels, "count.tif", count=True, extent=(10, 45, 11, 46), resolution=(0.01, 0.01))
    assert (read("count.tif")[0] == inside * 2).all()


def test_features_that_have_no_value_are_told(here):
    scene("scene.tif")
    parcels = features(here / "parcels.geojson", (BOX, {"zone": "3"}), (BOX, {"zone": "none"}))
    done = raster.rasterize(parcels, "zones.tif", attribute="zone", like="scene.tif")
    assert (done.exit_code, done.rejected, done["features"]["used"]) == (4, 1, 1)
    assert read("zones.tif").max() == 3
    with pytest.raises(tidegate.DeadLettersLeft, match="1 features were not used"):
        done.raise_for_status()


def test_mosaic_and_calc(here):
    west, east = scene("west.tif"), scene("east.tif", left=11.0)
    raster.mosaic(["west.tif", here / "east.tif"], "all.tif")
    assert (read("all.tif") == numpy.concatenate([west, east], axis=2)).all()
    a = scene("two.tif", bands=2, dtype="float32", nodata=None)
    done = raster.calc(
        "two.tif", "made.tif", ["(b2 - b1) / (b2 + b1)", "west + other"],
        band={"west": "west.tif", "other": (here / "two.tif", 2)}, nodata=-1,
    )
    assert (done["bands"], done["sample"]) == (2, "float32")
    made = read("made.tif")
    numpy.testing.assert_allclose(made[0], (a[1] - a[0]) / (a[1] + a[0]))
    numpy.testing.assert_allclose(made[1], west[0] + a[1])


def test_repair(here):
    values = scene("scene.tif")
    whole = (here / "scene.tif").read_bytes()
    (here / "broken.tif").write_bytes(bytes(4) + whole[4:])
    with pytest.raises(tidegate.RunFailed) as raised:
        raster.info("broken.tif")
    assert raised.value.code == "CORRUPTED_HEADER" and "broken.tif: not a TIFF file" in str(raised.value)
    would = raster.repair("broken.tif")
    assert would.outcome == "repaired" and would["output"] is None
    done = raster.repair("broken.tif", "repaired.tif")
    assert (done.outcome, done.proof, done.exit_code) == ("repaired", would.proof, 0) and done["changes"]
    assert (read("repaired.tif") == values).all()
    raster.cog("scene.tif", "cog.tif", block=64)
    cut = (here / "cog.tif").read_bytes()
    (here / "cut.tif").write_bytes(cut[:-50])
    with pytest.raises(tidegate.RunFailed) as refused:
        raster.repair("cut.tif", "rest.tif")
    assert refused.value.code == "CORRUPTED_BLOCK" and not (here / "rest.tif").exists()
    part = raster.repair("cut.tif", "rest.tif", partial=True)
    assert (part.outcome, part.exit_code) == ("partial", 4) and part["blocks_lost_count"] >= 1
    with pytest.raises(tidegate.DeadLettersLeft):
        part.raise_for_status()
    (here / "page.tif").write_text("<html><body>503 Service Unavailable</body></html>")
    with pytest.raises(tidegate.RunError) as page:
        raster.repair("page.tif", "no.tif")
    assert page.value.code == "ERROR_DOCUMENT"


def test_what_is_wrong_is_said(here):
    scene("scene.tif", side=10)
    (here / "there.tif").write_text("")
    for work, said in [
        (lambda: raster.info("none.tif"), "none.tif"),
        (lambda: raster.validate("none.tif"), "none.tif"),
        (lambda: raster.cog("scene.tif", "there.tif"), "there.tif exists; pass overwrite"),
        (lambda: raster.cog("scene.tif", "scene.tif"), "same file"),
        (lambda: raster.warp("scene.tif", "no.tif", methd="cubic"), "method"),
        (lambda: raster.warp("scene.tif", "no.tif", method="fancy"), "bilinear"),
        (lambda: raster.warp("scene.tif", "no.tif", to_crs="EPSG:1"), "EPSG:1"),
        (lambda: raster.clip("scene.tif", "no.tif", box=(50, 50, 51, 51)), "nothing of the raster"),
        (lambda: raster.calc("scene.tif", "no.tif", "b2 + 1"), "expected one of b1"),
        (lambda: raster.cog("scene.tif", "no.tif", quiet=True), "quiet is not an argument"),
    ]:
        with pytest.raises(tidegate.ValidationError) as raised:
            work()
        assert said in str(raised.value) and "--" not in str(raised.value)
    assert not (here / "no.tif").exists()
    assert raster.cog("scene.tif", "there.tif", overwrite=True)["tiles"] == 1


def test_a_remote_raster_is_read_whole_although_its_server_fails(here, chaos):
    values = scene("scene.tif", side=300)
    (here / "served").mkdir()
    raster.cog("scene.tif", "served/cog.tif", block=64)
    server = chaos(rasters="served", status="503=first:1", range_fault="zeros=20%", seed=3)
    url = f"{server.url}/raster/cog.tif"
    with pytest.raises(tidegate.ValidationError, match="base_delay"):
        raster.info(url, base_delay="soon")

    async def both():
        one = raster.clip_async(url, "a.tif", box=(10, 45, 10.5, 46), base_delay=0.01)
        two = raster.warp_async(url, "b.tif", base_delay="10ms", attempts=20)
        return await asyncio.gather(one, two)

    first, second = asyncio.run(both())
    assert (first["width"], second["width"]) == (150, 300)
    assert (read("a.tif") == values[:, :, :150]).all() and (read("b.tif") == values).all()
    assert server.stats["by_status"]["503"] == 1


def test_each_call_has_options_of_its_own(here, chaos):
    """One address at two endpoints: the second call does not ask the first one."""
    for side in (10, 20, 10):
        (here / str(side)).mkdir(exist_ok=True)
        scene(here / str(side) / "scene.tif", side=side)
        endpoint = f"{chaos(rasters=here / str(side)).url}/s3"
        found = raster.info("s3://scenes/scene.tif", endpoint=endpoint, anonymous=True, allow_private=True)
        assert found.width == side


def test_a_server_that_is_down_is_to_be_tried_later(chaos):
    server = chaos(status="503=100%")
    with pytest.raises(tidegate.TryLater) as raised:
        raster.info(f"{server.url}/raster/scene.tif", attempts=2, base_delay=0.001, patience=0.1)
    assert raised.value.code == "SERVICE_UNAVAILABLE" and server.calls >= 2


def test_ctrl_c_ends_it_and_nothing_is_written(here, chaos):
    scene("scene.tif", side=64)
    (here / "served").mkdir()
    raster.cog("scene.tif", "served/cog.tif")
    server = chaos(rasters="served", hang="100%")
    code = textwrap.dedent("""
        import sys, time
        from tidegate import raster
        print("go", flush=True)
        try:
            raster.cog(sys.argv[1], "out.tif", deadline="1h", patience="1h")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    words = [sys.executable, "-c", code, f"{server.url}/raster/cog.tif"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    while not server.calls:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=100)
    assert (said, child.returncode) == ("interrupted\n", 0)
    assert not list(here.glob("out*"))


def test_a_stopped_transformation_ends_at_the_next_tile(here):
    """Half a million tiles: asked to stop, it ends and leaves nothing."""
    scene("scene.tif", side=16, nodata=None)
    words = ["raster", "warp", "--size=12000,12000", "--block=16", "--threads=1", "scene.tif", "out.tif"]
    command = _core.Command(words)
    assert not command.wait(0.2)
    command.stop()
    assert command.wait(100)
    exit_code, _, said, failure = command.output()
    assert (exit_code, failure) == (1, None) and "it was asked to stop" in said
    assert [path.name for path in here.iterdir()] == ["scene.tif"]
