"""Dead letters: looked at, repaired, replayed, closed."""

import json
import subprocess

import geopandas
import pytest
import tidegate
from tidegate import dlq

BOW = [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]
BOX = [[[10, 10], [11, 10], [11, 11], [10, 11], [10, 10]]]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def report(here):
    """A run of ten parcels, three of which cross themselves."""
    features = [
        {
            "type": "Feature",
            "properties": {"id": n},
            "geometry": {"type": "Polygon", "coordinates": BOW if n < 3 else BOX},
        }
        for n in range(10)
    ]
    (here / "in.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    pipeline = {
        "id": "parcels",
        "retry_policy": {"max_attempts": 3, "deadline": "10s", "base_delay": "1s"},
        "source": {"file": "in.geojson"},
        "gates": [{"check": "is_valid", "max_rate": 0.5}],
        "tolerance": {"max_null_rate": 0, "halt_on_geometry_invalid": False},
        "dead_letters": {"store": "letters.db"},
        "sink": {"file": "out.gpkg", "key": ["id"]},
    }
    return tidegate.run({"pipeline": pipeline})


def test_letters_are_looked_at_repaired_and_replayed(report):
    assert report.exit_code == 4 and report.committed == 7 and report.dead == 3
    # A store is never code: it can be looked at, and what is done needs a manifest.
    unnamed = dlq.open("letters.db")
    with pytest.raises(tidegate.ValidationError, match="name the manifest of parcels"):
        unnamed.replay(all=True)
    with pytest.raises(tidegate.ValidationError, match="name the manifest of parcels"):
        unnamed.fix("make_valid", code="INVALID_GEOMETRY")
    assert {letter.state for letter in unnamed} == {"captured"}
    letters = report.letters
    assert len(letters) == 3 == len(report.letters) and "3 open" in repr(letters)
    codes = {letter.code for letter in letters}
    assert codes == {"INVALID_GEOMETRY"}
    first = letters.find(limit=1)[0]
    assert letters[first.id[-8:]].id == first.id and first.state == "captured" and first.message
    assert "received" not in letters.show(first.id)
    assert json.loads(letters.show(first.id, reveal="a test")["received"])["properties"] is not None
    frame = letters.to_geodataframe()
    assert frame.crs == "EPSG:4326" and set(frame.id) == {letter.id for letter in letters}
    assert (frame.layer == "invalid").sum() == 3 and (frame.layer == "defects").sum() == 3
    assert sum(group["letters"] for group in letters.stats()) == 3
    assert "INVALID_GEOMETRY" in letters._repr_html_()
    with pytest.raises(tidegate.ValidationError, match="no filter given"):
        letters.fix("make_valid")
    dry = letters.fix("make_valid", code="INVALID_GEOMETRY", dry_run=True)
    assert dry[0]["validated"] == 3 and {letter.state for letter in letters} == {"captured"}
    assert letters.fix("make_valid", code="INVALID_GEOMETRY")[0]["validated"] == 3
    assert letters.replay(state="validated", dry_run=True).plans[0]["replay"][0]["letters"] == 3
    done = letters.replay(state="validated", verify=True)
    assert done["resolved"] == 3 and done["left"] == 0 and done.exit_code == 0
    assert len(letters) == 0 and letters.find() == [] and len(letters.find(closed=True)) == 3
    layer = geopandas.read_file("out.gpkg")
    assert len(layer) == 10 and layer.is_valid.all()


def test_letters_are_edited_and_closed(report):
    letters = report.letters
    first, second, third = [letter.id for letter in letters]
    good = json.loads(letters.show(first, reveal="to mend it")["current"])
    good["geometry"] = {"type": "Polygon", "coordinates": BOX}
    letters.edit(first, good)
    assert letters[first].state == "validated"
    assert letters.resolve("the parcel is gone", id=[second, third]) == 2
    assert [letter.id for letter in letters] == [first]
    assert letters[second].state == "dismissed"
    assert letters.resolve("again", id=[second]) == 0


def test_a_program_puts_its_own(here):
    letters = dlq.open("own.db", create=True)
    place = {"type": "Point", "coordinates": [16.37, 48.2]}
    assert letters.put("import", "SCHEMA_MISMATCH", {"a": 1}, record="17", message="no field `b`")
    assert letters.put("import", "SCHEMA_MISMATCH", {"a": 1}, record="17") is None
    assert letters.put("import", "TIMEOUT", {"type": "Feature", "properties": {}, "geometry": place})
    assert len(letters) == 2 and [letter["times"] for letter in letters] == [2, 1]
    found = letters.find(code="TIMEOUT", bbox=(16, 48, 17, 49), pipeline="import")
    assert [letter.code for letter in found] == ["TIMEOUT"]
    told = subprocess.run(
        ["tidegate", "dlq", "ls", "--store=own.db", "--format=json"], capture_output=True, text=True, check=True
    )
    assert {letter["id"] for letter in json.loads(told.stdout)} == {letter.id for letter in letters}
    assert letters.to_geodataframe().geometry.notna().sum() == 1


def test_a_store_that_is_not_there(here):
    with pytest.raises(tidegate.ValidationError, match="no dead letter store at none.db"):
        dlq.open("none.db")
