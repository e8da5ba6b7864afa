"""The faulty provider and the pytest plugin."""

import urllib.error
import urllib.request

import pytest
import tidegate

pytest_plugins = ["pytester"]


def get(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status
    except urllib.error.HTTPError as answer:
        return answer.code


def test_it_keeps_books(chaos):
    server = chaos(throttle="fixed:3/1h", headers="retry-after")
    asked = [get(f"{server.url}/nominatim/search?q={n}") for n in range(5)]
    assert asked == [200, 200, 200, 429, 429]
    assert (server.calls, server.refused, server.wasted) == (5, 2, 0.4)
    assert server.stats["by_status"] == {"200": 3, "429": 2}
    server.reset()
    assert server.calls == 0 and "0 calls" in repr(server)


def test_it_stops_with_its_block():
    with tidegate.chaos(status="500=@1") as server:
        assert get(f"{server.url}/nominatim/search?q=1") == 500
    assert server.calls == 1
    with pytest.raises(OSError):
        get(server.url)


def test_wrong_options_are_refused(chaos):
    with pytest.raises(tidegate.ValidationError, match="throttle"):
        chaos(throttle="sometimes")
    with pytest.raises(tidegate.ValidationError, match="thorttle"):
        chaos(thorttle="bucket:50/s")


def test_the_fixture_is_there_for_any_test_suite(pytester):
    pytester.makepyfile(
        """
        import urllib.request, pytest
        servers = []

        def test_one(chaos):
            servers.append(chaos(outage="0s..1h"))
            with pytest.raises(OSError):
                urllib.request.urlopen(servers[0].url + "/nominatim/search?q=1")
            assert servers[0].refused == 1 and servers[0].wasted == 1

        def test_two():
            with pytest.raises(OSError):
                urllib.request.urlopen(servers[0].url)
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)
