"""Lanes under other clients, and under the libraries above them."""

from __future__ import annotations

import asyncio
import importlib

import pytest

from tidegate import Lane
from tidegate.adapters import LanesOf

FAST = {"base_delay": "10ms", "max_delay": "1s"}


@pytest.fixture(params=["requests", "httpx", "httpx2"])
def client(request):
    """A function that makes a client of each kind through a lane."""

    def make(lane=None, **options):
        adapter = importlib.import_module(f"tidegate.adapters.{request.param}")
        if request.param == "requests":
            import requests

            session = requests.Session()
            session.mount("http://", adapter.LaneAdapter(lane, **options))
            return session
        return importlib.import_module(request.param).Client(transport=adapter.LaneTransport(lane, **options))

    make.kind = request.param
    return make


def test_what_fails_is_retried_below_the_client(chaos_server, client):
    server = chaos_server("--status", "503=first:2")
    lane = Lane(server.url, policy=FAST)
    response = client(lane).get(f"{server.url}/geocode?q=a")
    assert (response.status_code, response.json()["query"]) == (200, "a")
    assert server.stats()["by_status"] == {"200": 1, "503": 2}
    assert lane.snapshot()["statuses"] == {503: 2, 200: 1}


def test_the_last_response_is_returned_whatever_its_status(chaos_server, client):
    server = chaos_server("--status", "503=100%")
    lane = Lane(server.url, policy={**FAST, "max_attempts": 3, "outages_free": 0})
    session = client(lane)
    assert session.get(f"{server.url}/geocode?q=a").status_code == 503
    assert session.get(f"{server.url}/nothing").status_code in (404, 503)
    assert lane.snapshot()["in_flight"] == 0


def test_a_post_is_not_repeated_unless_that_is_safe(chaos_server, client):
    server = chaos_server("--status", "500=first:1")
    session = client(policy=FAST)
    body = {"addresses": ["a"]}
    assert session.post(f"{server.url}/geocode", json=body).status_code == 500
    safe = session.post(f"{server.url}/geocode?b", json=body, headers={"Idempotency-Key": "7"})
    assert safe.status_code == 200
    parts = (part for part in [b'{"addresses"', b': ["b"]}'])
    once = session.post(
        f"{server.url}/geocode?c", **{"data" if client.kind == "requests" else "content": parts},
        headers={"Idempotency-Key": "8", "content-type": "application/json"},
    )
    assert once.status_code == 500, "a body that cannot be sent again is sent once"


def test_a_lane_that_is_shut_is_an_error_of_the_client(chaos_server, client):
    server = chaos_server("--throttle", "fixed:1/1h", "--headers", "retry-after")
    session = client(patience="1s")
    assert session.get(f"{server.url}/geocode?q=a").status_code == 200
    assert session.get(f"{server.url}/geocode?q=b").status_code == 429
    base = importlib.import_module(client.kind)
    errors = base.exceptions.RequestException if client.kind == "requests" else base.TransportError
    with pytest.raises(errors) as caught:
        session.get(f"{server.url}/geocode?q=c")
    assert caught.value.not_before is not None
    assert server.stats()["requests"] == 2


def test_a_refused_connection_is_an_error_of_the_client(client):
    base = importlib.import_module(client.kind)
    errors = base.exceptions.ConnectionError if client.kind == "requests" else base.ConnectError
    with pytest.raises(errors):
        client(policy={**FAST, "max_attempts": 2}).get("http://127.0.0.1:9/")


def test_a_profile_finds_the_error_in_a_200(chaos_server, client):
    server = chaos_server("--error-200", "first:1")
    lane = Lane(f"{server.url}/pelias", profile="pelias", policy=FAST)
    response = client(lane).get(f"{server.url}/pelias/v1/search?text=a")
    assert "features" in response.json()
    assert lane.snapshot()["sent"] == 2


@pytest.mark.parametrize("kind", ["httpx", "httpx2"])
def test_the_async_transport(chaos_server, kind):
    server = chaos_server("--status", "503=first:1")
    httpx, adapter = importlib.import_module(kind), importlib.import_module(f"tidegate.adapters.{kind}")
    lane = Lane(server.url, policy=FAST)

    async def main():
        async with httpx.AsyncClient(transport=adapter.AsyncLaneTransport(lane)) as client:
            responses = await asyncio.gather(*(client.get(f"{server.url}/geocode?q={n}") for n in range(5)))
            assert [response.json()["query"] for response in responses] == [str(n) for n in range(5)]

    asyncio.run(main())
    assert (lane.snapshot()["in_flight"], lane.snapshot()["sent"]) == (0, 10)


def test_each_origin_gets_a_lane():
    lanes = LanesOf(None, {"policy": FAST})
    one = lanes.get("https://user:secret@a.example/x?y")
    assert lanes.get("https://a.example/z") is one
    assert lanes.get("https://b.example/z") is not one
    assert one.name == "https://a.example"


def test_pystac_client_searches_under_a_quota(chaos_server):
    import pystac_client
    from pystac_client.stac_api_io import StacApiIO

    from tidegate.adapters.requests import LaneAdapter

    server = chaos_server(
        "--features", "300", "--page-max", "50", "--throttle", "bucket:50/s,burst=2", "--headers", "retry-after"
    )
    lane = Lane(server.url)
    io = StacApiIO(max_retries=None)
    io.session.mount("http://", LaneAdapter(lane))
    catalog = pystac_client.Client.open(f"{server.url}/stac", stac_io=io)
    catalog.add_conforms_to("ITEM_SEARCH")
    items = list(catalog.search(max_items=300, limit=50).items_as_dicts())
    assert len({item["id"] for item in items}) == 300
    assert lane.snapshot()["sent"] >= 7


def test_owslib_reads_a_layer_that_fails_now_and_then(chaos_server):
    from owslib import util
    from owslib.wfs import WebFeatureService

    from tidegate.adapters import owslib

    server = chaos_server("--features", "20", "--status", "503=first:1")
    lane = Lane(server.url, policy=FAST)
    before = util.requests
    with owslib.through(lane):
        service = WebFeatureService(f"{server.url}/wfs", version="2.0.0")
        assert "tide:parcels" in service.contents
        body = service.getfeature(typename=["tide:parcels"], outputFormat="application/json").read()
    assert util.requests is before
    assert body.count(b'"Feature"') == 20
    assert lane.snapshot()["statuses"][503] >= 2


def test_geopy_geocodes_through_a_lane(chaos_server):
    from geopy.geocoders import Nominatim

    from tidegate.adapters.geopy import adapter_factory

    server = chaos_server("--status", "503=first:1")
    lane = Lane(server.url, policy=FAST)
    geocoder = Nominatim(
        domain=f"{server.url.removeprefix('http://')}/nominatim",
        scheme="http",
        user_agent="tests",
        adapter_factory=adapter_factory(lane),
    )
    found = geocoder.geocode("1 Main Street")
    assert found is not None and -90 <= found.latitude <= 90
    assert lane.snapshot()["statuses"] == {503: 1, 200: 1}
