"""Simulates policies in virtual time: what they do before a provider is involved."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from tidegate import errors
from tidegate._call import Path, call, options, yaml


class Result(dict[str, Any]):
    """What came of a simulation: the keys of ``tidegate simulate --format json``."""

    #: The tables and charts as an HTML page.
    page: str = ""

    @property
    def ok(self) -> bool:
        """Whether every expectation holds."""
        return all(check["held"] for check in self["checks"])

    @property
    def cases(self) -> dict[str, dict[str, float]]:
        """The mean of each metric of each case."""
        return {
            case["name"]: {metric["name"]: metric["mean"] for metric in case["metrics"]} for case in self["cases"]
        }

    def to_dataframe(self) -> Any:
        """The cases as a pandas frame, a row each."""
        import pandas

        return pandas.DataFrame.from_dict(self.cases, orient="index")

    def plot(self, at: int = 0, ax: Any = None) -> Any:
        """Draw a plot with matplotlib, the first one by default; returns its axes."""
        plots = self["plots"]
        if not 0 <= at < len(plots):
            raise errors.ValidationError(f"there is no plot {at}; this simulation has {len(plots)}")
        if ax is None:
            import matplotlib.pyplot

            ax = matplotlib.pyplot.subplots()[1]
        plot = plots[at]
        for line in plot["lines"]:
            ax.plot([x for x, _ in line["points"]], [y for _, y in line["points"]], label=line["name"])
        ax.set(title=plot["title"], xlabel=plot["x"]["label"], ylabel=plot["y"]["label"])
        if plot["x"]["log"]:
            ax.set_xscale("log")
        if plot["y"]["log"]:
            ax.set_yscale("log")
        ax.legend()
        return ax

    def __repr__(self) -> str:
        checks = len(self["checks"])
        said = f", {checks} expectations {'held' if self.ok else 'broken'}" if checks else ""
        return f"<Result {self['name']}: {len(self['cases'])} cases{said}>"

    def _repr_html_(self) -> str:
        cases = self.cases
        metrics = list(dict.fromkeys(name for case in cases.values() for name in case))
        cell = html.escape
        head = "".join(f"<th>{cell(name)}</th>" for name in metrics)
        rows = "".join(
            f"<tr><th style='text-align:left'>{cell(name)}</th>"
            + "".join(f"<td>{case[metric]:,.4g}</td>" if metric in case else "<td></td>" for metric in metrics)
            + "</tr>"
            for name, case in cases.items()
        )
        broken = [
            f"{check['case']}: {check['metric']} is {check['got']}, expected {check['wanted']}"
            for check in self["checks"]
            if not check["held"]
        ]
        said = "".join(f"<div style='color:#cf222e'>{cell(text)}</div>" for text in broken)
        return f"<div><b>{cell(self['name'])}</b><table><tr><th></th>{head}</tr>{rows}</table>{said}</div>"


def simulate(
    policy: Path | Mapping[str, Any] | None = None,
    scenario: Path | Mapping[str, Any] | None = None,
    *,
    seed: int | None = None,
    trials: int | None = None,
    compare: list[str] | None = None,
) -> Result:
    """Simulate a policy against a scenario, or against typical servers if there is none. No requests are sent.

    :param policy: a manifest, as file or dict; or a dict with the policies of one: retry_policy,
        circuit_breaker, retry_budget, rate_limit. Without it, the policy of the scenario.
    :param scenario: a file of a scenario, or a dict with its keys.
    :param compare: policies to compare with: at-once, exponential, full, equal, decorrelated, no-retry.
    :raises ValidationError: a file or a key is not valid.
    """
    if policy is None and scenario is None:
        raise errors.ValidationError("give a policy, a scenario or both")
    with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
        given: Path
        if scenario is None:
            given = _file(folder, "policy.yaml", _policy(policy))
        elif policy is None:
            given = _file(folder, "scenario.yaml", scenario)
        else:
            given = _file(folder, "scenario.yaml", _with(scenario, policy, folder))
        own = options({"seed": seed, "trials": trials, "compare": ",".join(compare) if compare else None})
        page = os.path.join(folder, "page.html")
        output = call(["simulate", "--format=json", f"--html={page}", *own, "--", given])
        # 1: an expectation does not hold, which is a result.
        if output.exit_code not in (0, 1) or not output.data:
            raise errors.ValidationError(output.reason())
        result = Result(output.json())
        with open(page, encoding="utf-8") as file:
            result.page = file.read()
    return result


def _policy(given: Path | Mapping[str, Any] | None) -> Path | Mapping[str, Any]:
    """A manifest: what is given, or the policies as one of a pipeline without parts."""
    if not isinstance(given, Mapping):
        return given or ""
    if "pipeline" in given:
        return given
    tolerance = {"max_null_rate": 0, "halt_on_geometry_invalid": True}
    return {"pipeline": {"id": "policy", "tolerance": tolerance, **given}}


def _with(scenario: Path | Mapping[str, Any], policy: Any, folder: str) -> Mapping[str, Any] | str:
    """The scenario with this policy included."""
    if isinstance(policy, Mapping) and "pipeline" not in policy:
        policy = {"pipeline": dict(policy)}
    where = os.path.abspath(_file(folder, "policy.yaml", policy))
    if isinstance(scenario, Mapping):
        return {"include": where, **scenario}
    with open(scenario, encoding="utf-8") as file:
        return f"include: {where}\n{file.read()}"


def _file(folder: str, name: str, given: Any) -> str:
    """The file of what is given: itself, a dict written there, or a text."""
    if isinstance(given, str) and "\n" not in given or isinstance(given, os.PathLike):
        return os.fspath(given)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(given if isinstance(given, str) else yaml(given))
    return path
