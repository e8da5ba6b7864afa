"""Assets of manifests: one asset per manifest, its gates as checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from tidegate.dagster._manifest import parts, word
from tidegate.dagster._resource import MANIFEST

#: Values that stand for those of a partition while the manifest is read.
_PLACEHOLDERS = {
    "TIDEGATE_PARTITION": "2000-01-01",
    "TIDEGATE_PARTITION_START": "2000-01-01T00:00:00Z",
    "TIDEGATE_PARTITION_END": "2000-01-02T00:00:00Z",
}


def check_specs(
    manifest: str | os.PathLike[str],
    asset: dg.CoercibleToAssetKey,
    *,
    variables: Mapping[str, Any] | None = None,
    blocking: Iterable[str] = (),
) -> list[dg.AssetCheckSpec]:
    """The checks of an asset: one per gate of its manifest, and ``dead_letters``.

    A gate that halts is an error, one that rejects or warns is a warning.

    :param blocking: names of checks that keep downstream assets from running if they fail.
    """
    return _specs(parts(manifest, variables), asset, frozenset(blocking))


def _specs(found: Mapping[str, Any], asset: dg.CoercibleToAssetKey, blocking: frozenset[str]) -> list[dg.AssetCheckSpec]:
    said = {
        gate["check"]: f"gate {gate['gate']}: severity {gate['severity']}, tolerates a share of {gate['max_rate']:g}"
        for gate in found["gates"]
    }
    said["dead_letters"] = "no record became a dead letter"
    unknown = blocking - said.keys()
    if unknown:
        raise dg.DagsterInvalidDefinitionError(
            f"{found['file']} has no checks {sorted(unknown)}; it has {sorted(said)}"
        )
    return [
        dg.AssetCheckSpec(name=name, asset=asset, description=text, blocking=name in blocking)
        for name, text in said.items()
    ]


def tidegate_assets(
    manifest: str | os.PathLike[str],
    *,
    key: dg.CoercibleToAssetKey | None = None,
    group_name: str | None = None,
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    deps: Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    blocking: Iterable[str] = (),
    spec: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Make an asset of a manifest, with a check for each of its gates.

    The manifest is read and validated when the code is loaded; its source and sink are not opened.

    :param key: the key of the asset; by default the name of the pipeline.
    :param variables: values for ``${NAME}``, needed to read the manifest. Those of a partition are set.
    :param blocking: names of checks that keep downstream assets from running if they fail.
    :param spec: further arguments of ``AssetSpec``: owners, tags, automation_condition, …
    :param more: further arguments of ``multi_asset``: retry_policy, pool, op_tags, …
    :raises ValidationError: the manifest is not valid.
    """
    path = os.fspath(Path(manifest).absolute())
    standing = _PLACEHOLDERS if partitions_def is not None else {}
    found = parts(path, {**standing, **(variables or {})})
    asset_key = dg.AssetKey.from_coercible(key if key is not None else word(found["pipeline"]))
    given = dict(spec or {})
    one = dg.AssetSpec(
        asset_key,
        group_name=group_name,
        deps=deps,
        partitions_def=partitions_def,
        metadata={MANIFEST: dg.MetadataValue.path(path), **given.pop("metadata", {})},
        kinds={"tidegate", *given.pop("kinds", ())},
        description=given.pop("description", None) or _words(found),
        **given,
    )

    def decorate(function: Callable[..., Any]) -> dg.AssetsDefinition:
        return dg.multi_asset(
            name=more.pop("name", function.__name__),
            specs=[one],
            check_specs=_specs(found, asset_key, frozenset(blocking)),
            **more,
        )(function)

    return decorate


def _words(found: Mapping[str, Any]) -> str:
    steps = ", ".join(found["steps"]) or "none"
    return f"Pipeline {found['pipeline']} of {Path(found['file']).name}. Steps: {steps}."
