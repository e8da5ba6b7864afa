"""A table in PostGIS: the server of TIDEGATE_TEST_DATABASE, or the one on this machine."""

import os
import uuid

import pytest
import tidegate


def test_a_wfs_goes_into_a_table_and_a_killed_run_goes_on(tmp_path, monkeypatch, chaos):
    monkeypatch.chdir(tmp_path)
    url = os.environ.get("TIDEGATE_TEST_DATABASE", "postgres://postgres@127.0.0.1/test")
    monkeypatch.setenv("DATABASE_URL", url)
    table = f"python_{uuid.uuid4().hex[:12]}"
    server = chaos(features=1000, page_max=100, throttle="bucket:50/s,burst=2", headers="retry-after")
    manifest = {
        "pipeline": {
            "id": table,
            "services": {"cadastre": {"url": server.url + "/wfs", "profile": "geoserver-wfs"}},
            "source": {"service": "cadastre", "layer": "tide:parcels", "paging": {"size": 100, "sort_by": "id"}},
            "steps": [{"promote_to_multi": True}],
            "retry_policy": {"max_attempts": 5, "base_delay": "1s", "deadline": "1m"},
            "tolerance": {"max_null_rate": 1.0, "halt_on_geometry_invalid": False},
            "dead_letters": {},
            "sink": {"postgis": {"url": "env:DATABASE_URL", "table": "${TABLE}"}, "key": ["id"]},
        }
    }

    def stop(now):
        if now.written >= 200:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tidegate.run(manifest, variables={"TABLE": table}, on_progress=stop)
    for _ in range(100):
        report = tidegate.run(manifest, variables={"TABLE": table})
        if report.exit_code != 75:
            break
    assert report.ok and report["resumed"]
    assert report.committed == 1000 == report["sink_rows"]
    assert tidegate.run(manifest, variables={"TABLE": table})["unchanged"] == 1000
