"""Dead letters: records that a pipeline gave up, with everything needed to repair and replay them."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate import _frames
from tidegate._call import (
    OnProgress,
    Output,
    Path,
    call,
    checked,
    manifest_words,
    options,
    variable_words,
)

__all__ = ["Letter", "Letters", "open"]

_ALL = 4_294_967_295


class Letter(dict[str, Any]):
    """A dead letter: the keys of ``tidegate dlq ls --format json``. Coordinates are rounded."""

    @property
    def id(self) -> str:
        """Its id."""
        return str(self["id"])

    @property
    def code(self) -> str:
        """The code of the failure, such as ``TIMEOUT``."""
        return str(self["failure"]["code"])

    @property
    def state(self) -> str:
        """captured, scheduled, review, validated, planned, resolved, dead, dismissed or archived."""
        return str(self["state"])

    @property
    def message(self) -> str:
        """Why it failed, in words."""
        return str(self["failure"]["message"])

    @property
    def attempts(self) -> int:
        """How often it was tried."""
        return len(self["failure"].get("attempts") or ())

    def __repr__(self) -> str:
        return f"<Letter {self.id} {self.state} {self.code}: {self.message}>"


def open(
    store: Path = ".tidegate/letters.db",
    *,
    key: Path | None = None,
    create: bool = False,
    manifest: Path | Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    state: Path | None = None,
) -> Letters:
    """Open a store of dead letters: a file, or ``postgres://user@host/db?schema=NAME``.

    :param key: the file with the secret keys of sealed payloads.
    :param create: the store need not exist; the first ``put`` creates it.
    :param manifest: the manifest of the pipeline: a file, its text, or a dict. What ``replay`` calls and
        writes, and the sink that ``fix`` and ``edit`` ask, come from it, never from the store.
    :param variables: values for ``${NAME}`` in the manifest, before those of the environment.
    :param state: the state directory of its runs; by default that of the store, else ``.tidegate``.
    :raises ValidationError: there is no such store.
    """
    letters = Letters(store, key, manifest, variables, state)
    if not create:
        len(letters)
    return letters


class Letters:
    """A store of dead letters. Iterating gives the open ones, the oldest first.

    Every method takes the filters of ``tidegate dlq``: id, code, class_, state, fingerprint, pipeline,
    stage, service, since, until, bbox, crs, text, generation. A method that changes letters refuses to
    be called without a filter, unless ``all=True``.
    """

    def __init__(
        self,
        store: Path,
        key: Path | None = None,
        manifest: Path | Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        state: Path | None = None,
    ) -> None:
        #: Where it is.
        self.store: str = os.fspath(store)
        self._key = key
        self._manifest = manifest
        self._variables = variables
        self._state = state

    def _named(self, manifest: Path | Mapping[str, Any] | None) -> tuple[list[str], str | None]:
        """The options for the pipeline, and the text of its manifest if it is no file."""
        given = self._manifest if manifest is None else manifest
        state = options({"state_dir": self._state})
        if given is None:
            return state, None
        file, text = manifest_words(given)
        return [f"--manifest={file}", *variable_words(self._variables), *state], text

    def _call(
        self,
        verb: str,
        words: list[str],
        given: dict[str, Any],
        *,
        input: str | None = None,
        codes: tuple[int, ...] = (),
        progress: bool | None = False,
        on_progress: OnProgress | None = None,
        format: str = "json",
    ) -> Output:
        filters = {name.rstrip("_"): _joined(value) if name == "bbox" else value for name, value in given.items()}
        own = ["dlq", verb, f"--store={self.store}", f"--format={format}", *options({"key": self._key})]
        output = call([*own, *options(filters), *words], input=input, progress=progress, on_progress=on_progress)
        return output if output.exit_code in codes else checked(output)

    def find(
        self, *, closed: bool = False, limit: int | None = None, reveal: str | None = None, **filters: Any
    ) -> list[Letter]:
        """The letters, the oldest first.

        :param closed: also those that are resolved, dismissed or archived.
        :param reveal: show exact coordinates; the reason is recorded in the audit.
        """
        given = {"oldest": True, "limit": limit or _ALL, "closed": closed, "reveal": reveal, **filters}
        lines = self._call("ls", [], given, format="ndjson").data.splitlines()
        return [Letter(json.loads(line)) for line in lines]

    def __iter__(self) -> Iterator[Letter]:
        return iter(self.find())

    def __len__(self) -> int:
        return sum(int(group["open"]) for group in self.stats(by="state"))

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, id: str) -> Letter:
        return self.show(id)

    def show(self, id: str, *, reveal: str | None = None) -> Letter:
        """All details of a letter; its payload and exact coordinates with ``reveal``, a reason that is
        recorded in the audit."""
        return Letter(self._call("show", ["--", id], {"reveal": reveal}).json())

    def stats(self, by: str = "fingerprint", **filters: Any) -> list[dict[str, Any]]:
        """Groups of the same failure, the most frequent first; by fingerprint, code, service, pipeline,
        class, stage, state or age."""
        groups: list[dict[str, Any]] = self._call("stats", [], {"by": by, **filters}).json()
        return groups

    def to_geodataframe(self, **filters: Any) -> Any:
        """The letters as a GeoDataFrame in EPSG:4326, with exact coordinates; the audit records it.

        ``layer`` tells valid and invalid geometries, the points of defects, and letters without a place.
        """
        geopandas = _frames.require_geopandas()
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            file = os.path.join(folder, "letters.geojsonl")
            self._call("export", [f"--output={file}"], filters)
            with io.open(file, encoding="utf-8") as lines:
                features = [json.loads(line) for line in lines]
        if not features:
            return geopandas.GeoDataFrame({"id": []}, geometry=[], crs="EPSG:4326")
        return geopandas.GeoDataFrame.from_features(features, crs="EPSG:4326")

    def fix(
        self,
        rule: str | None = None,
        *,
        dry_run: bool = False,
        all: bool = False,
        default_crs: str | None = None,
        tolerance: float | None = None,
        area: tuple[float, float, float, float] | None = None,
        map: dict[str, str] | None = None,
        command: str | None = None,
        pass_env: list[str] | None = None,
        folder: Path | None = None,
        seconds: int | None = None,
        rules: Path | None = None,
        manifest: Path | Mapping[str, Any] | None = None,
        **filters: Any,
    ) -> list[dict[str, Any]]:
        """Repair letters by a rule: crs_lookup, make_valid, wait, clip, swap_axes, close_rings, wind, flag,
        repair_raster, remap, command; or by those of a manifest. What a rule makes must pass the gates before
        it can be replayed. If it changes the type of a geometry, the sink of the manifest is asked whether it
        holds it.

        Returns for each rule its counts: seen, validated, scheduled, review, unrecoverable, untouched.

        :param pass_env: for command, the environment variables that the program gets besides PATH, HOME and the
            like.
        :param folder: for repair_raster, the directory in which rasters may be opened that letters name.
        """
        given = {
            "rule": rule,
            "dry_run": dry_run,
            "all": all,
            "default_crs": default_crs,
            "tolerance": tolerance,
            "area": _joined(area),
            "map": [f"{old}={new}" for old, new in (map or {}).items()],
            "command": command,
            "pass_env": pass_env,
            "folder": folder,
            "seconds": seconds,
            "rules": rules,
            **filters,
        }
        words, text = self._named(manifest)
        told: list[dict[str, Any]] = self._call("fix", words, given, input=text).json()
        return [{"rule": one["rule"], "dry_run": one["dry_run"], **one["count"]} for one in told]

    def put(
        self,
        pipeline: str,
        code: str,
        payload: str | dict[str, Any],
        *,
        record: str | None = None,
        message: str | None = None,
        service: str | None = None,
        crs: str | None = None,
        retention: int | None = None,
    ) -> str | None:
        """Put a letter into the store from a program of one's own; returns its id, or None if an open
        letter has the same record and code already and was counted.

        :param code: the code of the failure, such as ``SCHEMA_MISMATCH``.
        :param payload: the record: a GeoJSON feature or geometry, or any other JSON.
        :param record: its key, unique in the pipeline; by default its content.
        """
        given = {
            "pipeline": pipeline,
            "code": code,
            "record": record,
            "message": message,
            "service": service,
            "crs": crs,
            "retention": retention,
        }
        text = payload if isinstance(payload, str) else json.dumps(payload)
        id: str | None = self._call("put", ["--payload=-"], given, input=text).json()["id"]
        return id

    def edit(
        self,
        id: str,
        payload: str | dict[str, Any],
        *,
        manifest: Path | Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the payload of a letter, such as its feature as GeoJSON. It must pass the gates. If it has
        another type of geometry, the sink of the manifest is asked whether it holds it."""
        words, text = self._named(manifest)
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            file = os.path.join(folder, "payload.json")
            with io.open(file, "w", encoding="utf-8") as to:
                to.write(payload if isinstance(payload, str) else json.dumps(payload))
            self._call("edit", [f"--from={file}", *words, "--", id], {}, input=text)

    def replay(
        self,
        *,
        dry_run: bool = False,
        all: bool = False,
        rate: str | float | None = None,
        max_generation: int | None = None,
        verify: bool = False,
        batch: int | None = None,
        resume: int | None = None,
        manifest: Path | Mapping[str, Any] | None = None,
        into: Path | None = None,
        **filters: Any,
    ) -> Replay:
        """Replay letters from the stage that failed. A replayed record overwrites its own row and is never
        duplicated; one that fails again becomes a new letter. Services and sink are those of the manifest.

        :param manifest: a file, its text, or a dict; by default the one that the store was opened with.
            ``Report.letters`` knows the one that ran.
        :param into: the file that ``dlq capture`` wrote into, for the letters of a capture.
        :raises ValidationError: no manifest was named.
        :raises TryLater: the sink or a service is not ready, or some letters are left.
        """
        given = {
            "dry_run": dry_run,
            "all": all,
            "rate": rate,
            "max_generation": max_generation,
            "verify": verify,
            "batch": batch,
            "resume": resume,
            "into": into,
            **filters,
        }
        words, text = self._named(manifest)
        return Replay(self._call("replay", words, given, input=text, codes=(0, 4)))

    def resolve(self, why: str, *, all: bool = False, **filters: Any) -> int:
        """Close letters that need no repair, with a reason for the audit; returns their number."""
        return int(self._call("dismiss", [], {"why": why, "all": all, **filters}).json()["letters"])

    def __repr__(self) -> str:
        return f"<Letters {self.store}: {len(self)} open>"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(str(group['code']))}</td><td>{group['letters']:,}</td>"
            f"<td>{group['open']:,}</td><td style='text-align:left'>{escape(str(group['message']))}</td></tr>"
            for group in self.stats()[:20]
        )
        head = "<tr><th>code</th><th>letters</th><th>open</th><th style='text-align:left'>message</th></tr>"
        return f"<div><b>{escape(self.store)}</b><table>{head}{rows}</table></div>"


class Replay(dict[str, Any]):
    """What became of a replay."""

    def __init__(self, output: Output) -> None:
        told = output.json()
        plans = told if isinstance(told, list) else []
        names = ("members", "resolved", "dead", "back", "purged", "left")
        super().__init__({name: sum(int(plan[name]) for plan in plans) for name in names})
        #: 0 all resolved, 4 some failed again.
        self.exit_code: int = output.exit_code
        #: What each pipeline's replay became, or would do.
        self.plans: list[dict[str, Any]] = plans or ([told] if told else [])


def _joined(value: Any) -> Any:
    return ",".join(str(item) for item in value) if isinstance(value, (list, tuple)) else value



