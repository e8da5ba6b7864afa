"""geocode and fetch: tables in and out."""

import asyncio
import sys

import geopandas
import pandas
import polars
import pyarrow
import pytest
import tidegate

ADDED = ["outcome", "code", "attempts", "provider", "label", "score", "match_type", "cache_hit", "error"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def streets(count):
    names = [f"Street {n}" for n in range(count)]
    return pandas.DataFrame({"street": names, "city": "Wien"}, index=[f"r{n}" for n in range(count)])


def test_a_frame_keeps_its_index_and_every_row_has_an_outcome(chaos):
    server = chaos(throttle="bucket:200/s,burst=20", no_match="10%", bad_rows="10%", seed=2)
    frame = streets(100)
    before = frame.copy()
    found = tidegate.geocode(frame, ["street", "city"], url=server.url)
    pandas.testing.assert_frame_equal(frame, before)
    assert isinstance(found, geopandas.GeoDataFrame) and found.crs == "EPSG:4326"
    assert list(found.index) == list(frame.index)
    assert list(found.columns) == ["street", "city", *ADDED, "geometry"]
    outcomes = found.outcome.value_counts().to_dict()
    assert sum(outcomes.values()) == 100 and set(outcomes) == {"matched", "no_match", "failed"}
    assert (found.geometry.notna() == (found.outcome == "matched")).all()
    assert set(found[found.outcome == "failed"].code) == {"BAD_REQUEST"}
    assert found.code.notna().sum() == outcomes["failed"] and (found.provider == "generic").all()
    # A second call asks nothing again but what failed.
    served = server.calls - server.refused
    again = tidegate.geocode(frame, ["street", "city"], url=server.url)
    assert server.calls - server.refused - served == outcomes["failed"] and again.cache_hit.sum() == 100 - outcomes["failed"]
    assert again.geometry.geom_equals(found.geometry).sum() == outcomes["matched"]


def test_polars_arrow_and_dicts_come_back_as_what_they_are(chaos):
    server = chaos(no_match="10%", seed=2)
    frame = streets(30)
    known = tidegate.geocode(frame, ["street", "city"], url=server.url)
    plain = frame.reset_index(drop=True)
    in_polars = tidegate.geocode(polars.DataFrame(plain.to_dict("list")), ["street", "city"], url=server.url)
    in_arrow = tidegate.geocode(pyarrow.Table.from_pandas(plain), ["street", "city"], url=server.url)
    in_rows = tidegate.geocode(plain.to_dict("records"), ["street", "city"], url=server.url)
    assert server.calls == 30
    assert isinstance(in_polars, polars.DataFrame) and isinstance(in_arrow, pyarrow.Table)
    assert in_polars.columns == in_arrow.column_names == list(known.columns)
    assert in_polars.schema["attempts"] == polars.Int64 and in_polars.schema["geometry"] == polars.Binary
    there = geopandas.GeoDataFrame.from_arrow(in_arrow)
    assert there.crs == "EPSG:4326"
    matched = known.geometry.notna().to_numpy()
    assert (there.geometry.notna().to_numpy() == matched).all()
    assert there.geometry[matched].geom_equals(known.geometry.reset_index(drop=True)[matched]).all()
    assert [row["lon"] for row in in_rows] == [p.x if p is not None else None for p in known.geometry]
    assert [row["outcome"] for row in in_rows] == list(known.outcome)


def test_missing_values_taken_names_and_commas(chaos):
    server = chaos()
    frame = pandas.DataFrame({"a,b": ["Street 1", None, 'Say "hi"\nthere'], "code": [1, 2, 3], "row": 0})
    found = tidegate.geocode(frame, "a,b", url=server.url)
    assert list(found.code) == [1, 2, 3] and list(found.row) == [0, 0, 0]
    assert list(found.outcome) == ["matched", "failed", "matched"]
    assert found.geocode_code[1] == "BAD_REQUEST" and found.geocode_code[0] is None


def test_no_rows(chaos):
    server = chaos()
    found = tidegate.geocode(streets(0), ["street"], url=server.url)
    assert len(found) == 0 and server.calls == 0 and found.crs == "EPSG:4326"


def test_reverse(chaos):
    server = chaos()
    found = tidegate.geocode([{"x": 16.37, "y": 48.2}], lon="x", lat="y", url=server.url)
    assert found[0]["outcome"] == "matched" and found[0]["label"]


def test_what_is_wrong_is_said_before_anything_is_sent(chaos):
    server = chaos()
    frame = streets(3)
    for wrong, said in [
        ({"address": ["strasse"]}, "no column 'strasse'; expected one of street, city"),
        ({"address": []}, "give the columns of the address"),
        ({"address": "street", "lon": "city"}, "give the columns of the address"),
        ({"address": "street", "profile": "nope"}, "nope"),
        ({"address": "street", "key": "env:NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
        ({"address": "street", "atempts": 3}, "attempts"),
        ({"address": "street", "attempts": 0}, "attempts"),
        ({"address": "street", "output": "x.csv"}, "output is not an argument"),
    ]:
        with pytest.raises(tidegate.ValidationError) as raised:
            tidegate.geocode(frame, **{"url": server.url, **wrong})
        assert said in str(raised.value)
    with pytest.raises(tidegate.ValidationError, match="cannot read a table from str"):
        tidegate.geocode("in.csv", "street", url=server.url)
    assert server.calls == 0


def test_a_provider_that_is_down_is_an_exception(chaos):
    server = chaos()
    server.stop()
    with pytest.raises(tidegate.TryLater):
        tidegate.geocode(streets(3), ["street"], url=server.url, attempts=1, deadline=5)


def test_many_at_once(chaos):
    server = chaos(throttle="bucket:200/s,burst=20")

    async def all():
        # No address is in two of them: calls at once do not know of each other's answers.
        frames = [streets(n + 5).assign(city=f"City {n}") for n in range(5)]
        return await asyncio.gather(*(tidegate.geocode_async(f, ["street", "city"], url=server.url) for f in frames))

    assert [len(frame) for frame in asyncio.run(all())] == [5, 6, 7, 8, 9]
    assert server.paid_twice == 0


def test_a_layer_comes_whole(chaos):
    server = chaos(features=2500, page_max=500, throttle="bucket:50/s,burst=5", headers="retry-after")
    layer = tidegate.fetch(server.url + "/wfs", "tide:parcels", profile="geoserver-wfs")
    assert isinstance(layer, geopandas.GeoDataFrame) and len(layer) == 2500 and layer.id.is_unique
    assert layer.crs == "EPSG:4326" and layer.attrs["tidegate"]["balanced"]
    table = tidegate.fetch(server.url + "/wfs", "tide:parcels", profile="geoserver-wfs", to="arrow")
    assert isinstance(table, pyarrow.Table) and table.num_rows == 2500
    as_frame = geopandas.GeoDataFrame.from_arrow(table)
    assert as_frame.geometry.geom_equals(layer.geometry).all()
    in_polars = tidegate.fetch(server.url + "/wfs", "tide:parcels", profile="geoserver-wfs", to="polars")
    assert in_polars.height == 2500 and set(in_polars.columns) == set(table.column_names)


def test_a_layer_that_is_not_whole_is_an_exception(chaos):
    server = chaos(features=1000, page_max=500, miscount=-7)
    with pytest.raises(tidegate.RunFailed, match="1,?000|993"):
        tidegate.fetch(server.url + "/wfs", "tide:parcels", profile="geoserver-wfs")
    with pytest.raises(tidegate.ValidationError, match="geopandas, polars, arrow"):
        tidegate.fetch(server.url + "/wfs", to="excel")


def test_geopandas_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "geopandas", None)
    with pytest.raises(tidegate.ValidationError, match=r"pip install 'tidegate\[geo\]'"):
        tidegate.fetch("http://127.0.0.1:1/wfs")
