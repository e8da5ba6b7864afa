"""The resource: where runs keep their state, and how patient a step is."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.pipes.client import PipesClientCompletedInvocation

from tidegate._call import options, spans, variable_words
from tidegate.dagster._client import Context, PipesTidegateClient
from tidegate.dagster._manifest import word

#: The metadata of an asset that names its manifest.
MANIFEST = "tidegate/manifest"


class TidegateResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Runs manifests and commands for assets.

    ``run(context)`` returns what :class:`PipesTidegateClient` returns; an asset yields its
    ``get_results()``.
    """

    #: The directory of locks, checkpoints, cached responses and dead letters. It must outlive the step.
    state: str = ".tidegate"
    #: A directory for HTML reports with a map; none are written without it.
    reports: str | None = None
    #: Where that directory can be read, such as https://reports.example/; the metadata then has a link.
    reports_url: str | None = None
    #: Environment variables of the process, such as API keys that the manifest refers to.
    env: dict[str, str] = {}
    #: How often a run may be asked to wait before the step fails.
    retries_max: int = 20
    #: The wait if the other side named none.
    retry_seconds: float = 60
    #: A longer wait fails the step without a retry.
    wait_seconds_max: float = 86_400

    def client(self) -> PipesTidegateClient:
        """The Pipes client with these settings."""
        return PipesTidegateClient(
            env=self.env,
            retries_max=self.retries_max,
            retry_seconds=self.retry_seconds,
            wait_seconds_max=self.wait_seconds_max,
        )

    def run(
        self,
        context: Context,
        manifest: str | os.PathLike[str] | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PipesClientCompletedInvocation:
        """Run a manifest; continue its last run if that did not finish.

        :param manifest: the file; by default that of the asset (:func:`tidegate_assets`).
        :param variables: values for ``${NAME}`` in the manifest. A partition adds
            ``TIDEGATE_PARTITION`` and, if it is one of time, ``TIDEGATE_PARTITION_START`` and ``_END``.
        :param more: further options of ``tidegate run``: atomic, full, keep_going.
        """
        file = manifest_of(context) if manifest is None else os.fspath(manifest)
        values = {**partition_variables(context), **(variables or {})}
        words = ["run", *options({"resume": True, **spans(more)}), *variable_words(values)]
        return self._start(context, words, [file], Path(file).stem)

    def geocode(self, context: Context, input: str, output: str, **more: Any) -> PipesClientCompletedInvocation:
        """Geocode a CSV file, with the options of ``tidegate geocode``: address, profile, url, key, …"""
        if isinstance(more.get("address"), (list, tuple)):
            more["address"] = ",".join(more["address"])
        words = ["geocode", *options({"resume": True, "output": output, **spans(more)})]
        return self._start(context, words, [input], Path(output).stem)

    def fetch(self, context: Context, url: str, output: str, **more: Any) -> PipesClientCompletedInvocation:
        """Fetch a layer into a file, with the options of ``tidegate fetch``: layer, profile, key, …"""
        words = ["fetch", *options({"resume": True, "output": output, **spans(more)})]
        return self._start(context, words, [url], Path(output).stem)

    def _start(
        self, context: Context, words: Sequence[str], last: Sequence[str], name: str
    ) -> PipesClientCompletedInvocation:
        own = [f"--state={self.state}"]
        page = None
        if self.reports is not None:
            os.makedirs(self.reports, exist_ok=True)
            page = f"{word(name)}-{context.run.run_id}.html"
            own.append(f"--report={os.path.join(self.reports, page)}")
        done = self.client().run(context=context, command=[*words, *own, "--", *last])
        if page is not None and self.reports_url is not None:
            return _Linked(done, self.reports_url.rstrip("/") + "/" + page)
        return done


class _Linked(PipesClientCompletedInvocation):
    """Results with a link to the report."""

    def __init__(self, done: PipesClientCompletedInvocation, url: str) -> None:
        self._done, self._url = done, url

    def get_results(self, **more: Any) -> Any:
        given = {**(more.pop("metadata", None) or {}), "map": dg.MetadataValue.url(self._url)}
        results = self._done.get_results(**more)
        return tuple(
            one._replace(metadata={**(one.metadata or {}), **given}) if isinstance(one, dg.MaterializeResult) else one
            for one in results
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._done, name)


def manifest_of(context: Context) -> str:
    """The manifest of the asset of a step."""
    found = {spec.metadata[MANIFEST] for spec in context.assets_def.specs if MANIFEST in spec.metadata}
    if len(found) != 1:
        raise dg.DagsterInvariantViolationError(
            "the asset names no manifest: define it with @tidegate_assets, or pass one to run()"
        )
    path = found.pop()
    return str(getattr(path, "path", None) or getattr(path, "value", path))


def partition_variables(context: Context) -> dict[str, str]:
    """The variables of a manifest that its partition sets."""
    if not context.has_partition_key:
        return {}
    key = context.partition_key
    values = {"TIDEGATE_PARTITION": str(key)}
    for name, part in getattr(key, "keys_by_dimension", {}).items():
        values[f"TIDEGATE_PARTITION_{word(name).upper()}"] = str(part)
    try:
        window = context.partition_time_window
    except Exception:
        # Not a partition of time.
        return values
    for name, at in (("START", window.start), ("END", window.end)):
        values[f"TIDEGATE_PARTITION_{name}"] = at.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return values
