"""A component for ``dg``: an asset of a manifest in a few lines of YAML."""

# No `from __future__ import annotations`: Dagster reads the annotation of `context` as it is.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from tidegate.dagster._assets import tidegate_assets
from tidegate.dagster._resource import TidegateResource
from tidegate.dagster._sensor import letters_sensor


class TidegateComponent(dg.Component, dg.Model, dg.Resolvable):
    """An asset of a manifest, with its gates as checks.

    ``dg scaffold defs tidegate.dagster.TidegateComponent parcels`` writes its ``defs.yaml``.
    """

    #: The manifest, relative to the directory of this component.
    manifest: str
    #: The key of the asset; by default the name of the pipeline.
    asset_key: str | None = None
    group_name: str | None = None
    #: Keys of assets that this one depends on.
    deps: list[str] = []
    #: Names of checks that keep downstream assets from running if they fail.
    blocking: list[str] = []
    #: Values for ``${NAME}`` in the manifest.
    variables: dict[str, str] = {}
    #: The directory of locks, checkpoints, cached responses and dead letters.
    state: str = ".tidegate"
    #: A directory for HTML reports with a map.
    reports: str | None = None
    #: A store of dead letters to watch; a run of the asset is asked for when letters appear.
    watch_letters: str | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        tidegate = TidegateResource(state=self.state, reports=self.reports)
        variables = dict(self.variables)

        @tidegate_assets(
            context.path / self.manifest,
            key=self.asset_key,
            group_name=self.group_name,
            deps=[dg.AssetKey.from_user_string(key) for key in self.deps],
            blocking=self.blocking,
            variables=variables,
            name="tidegate_" + "_".join(context.path.parts[-1:]).replace("-", "_"),
        )
        def asset(context: dg.AssetExecutionContext) -> Iterator[Any]:
            yield from tidegate.run(context, variables=variables).get_results()

        sensors = []
        if self.watch_letters is not None:
            name = f"letters_of_{asset.key.to_python_identifier()}"
            sensors.append(letters_sensor(self.watch_letters, name=name, asset_selection=[asset.key]))
        return dg.Definitions(assets=[asset], sensors=sensors)
