"""simulate: a policy in virtual time."""

from pathlib import Path

import pytest
import tidegate

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
POLICY = {"retry_policy": {"max_attempts": 4, "deadline": "60s", "base_delay": "1s"}}
WORLD = {"workload": {"drain": {"requests": 200}}, "server": {"outages": [{"from": 0, "until": 0.001}]}}


def test_a_scenario_holds_what_it_expects():
    result = tidegate.simulate(scenario=SCENARIOS / "herd.yaml", trials=3)
    assert result.ok and result["trials"] == 3
    assert result.cases["no jitter"]["calls"] == 2000
    assert "no jitter" in result._repr_html_() and result.page.startswith("<!")
    assert result.to_dataframe().loc["no jitter", "done"] == 1000


def test_a_policy_against_typical_servers_and_in_a_world():
    typical = tidegate.simulate(POLICY)
    assert {"steady", "throttled"} <= set(typical.cases) and typical.ok
    one = {"name": "own", "reason": "A test.", "world": WORLD, "cases": [{"name": "mine"}]}
    patient = tidegate.simulate(POLICY, one, seed=1)
    hasty = tidegate.simulate({"retry_policy": {"max_attempts": 1, "deadline": "60s", "base_delay": "1s"}}, one, seed=1)
    assert patient.cases["mine"]["done"] == 200 and hasty.cases["mine"]["done"] < 200
    assert tidegate.simulate(POLICY, one, seed=1) == patient


def test_an_expectation_that_does_not_hold_is_a_result():
    one = {
        "name": "own",
        "reason": "A test.",
        "world": WORLD,
        "cases": [{"name": "mine"}],
        "expect": {"mine": {"done": {"equals": 7}}},
    }
    result = tidegate.simulate(POLICY, one)
    assert not result.ok and "expected" in result._repr_html_() and "broken" in repr(result)


def test_lines_are_drawn():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    result = tidegate.simulate(scenario=SCENARIOS / "herd.yaml", trials=1)
    axes = result.plot()
    assert len(axes.lines) == len(result["plots"][0]["lines"])
    pyplot.close("all")
    with pytest.raises(tidegate.ValidationError, match="there is no plot 99"):
        result.plot(99)


def test_what_is_wrong_is_said():
    with pytest.raises(tidegate.ValidationError, match="retri_policy"):
        tidegate.simulate({"retri_policy": {}})
    with pytest.raises(tidegate.ValidationError, match="give a policy"):
        tidegate.simulate()
