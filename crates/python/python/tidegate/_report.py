"""What became of a run."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidegate import errors
from tidegate._call import Output

if TYPE_CHECKING:
    from tidegate.dlq import Letters


class Report(Mapping[str, Any]):
    """What became of a run: a mapping with the keys of ``tidegate run --format json``.

    Every record of the source is in exactly one of ``committed``, ``no_match``, ``dead``,
    ``filtered`` and ``deduped``.
    """

    def __init__(self, output: Output, named: Mapping[str, Any] | None = None) -> None:
        # The manifest that ran, for its letters: manifest, variables, state.
        self._named: dict[str, Any] = dict(named or {})
        self._result: dict[str, Any] = output.json()
        #: The exit code of the command line: 0 done, 3 halted, 4 dead letters, 5 alert, 75 try later.
        self.exit_code: int = output.exit_code
        #: The summary, as the command line prints it.
        self.summary: str = output.messages.strip()

    def __getitem__(self, key: str) -> Any:
        return self._result[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._result)

    def __len__(self) -> int:
        return len(self._result)

    def _count(self, key: str) -> int:
        return int(self._result.get(key) or 0)

    @property
    def ok(self) -> bool:
        """Whether every record has arrived: exit code 0."""
        return self.exit_code == 0

    @property
    def status(self) -> str:
        """done, halted, stopped, waiting, suspended or failed."""
        return str(self._result.get("status", "failed"))

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return str(self._result.get("pipeline", ""))

    @property
    def committed(self) -> int:
        """Records in the sink with everything that was asked for."""
        return self._count("written") - self.no_match - self._count("failed")

    @property
    def no_match(self) -> int:
        """Records in the sink for which a service knows no answer."""
        return self._count("no_match")

    @property
    def dead(self) -> int:
        """Records that were given up, each with a reason."""
        return self._count("rejected") + self._count("failed")

    @property
    def offered(self) -> int:
        """Records of the source, with those that lists were exploded into."""
        return self._count("read") + self._count("added")

    @property
    def calls(self) -> int:
        """Calls to services."""
        return self._count("calls")

    @property
    def not_before(self) -> datetime.datetime | None:
        """The earliest time to go on, if a service asked for a wait."""
        at = self._result.get("not_before_ms")
        return None if at is None else datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc)

    @property
    def waiting(self) -> bool:
        """Whether the run ended because the other side asks to wait, is down or locked."""
        return self.exit_code == 75

    @property
    def halted(self) -> Mapping[str, Any] | None:
        """What halted the run, if a gate did."""
        halt: Mapping[str, Any] | None = self._result.get("halt")
        return halt

    @property
    def error(self) -> str | None:
        """Why it did not finish, in words."""
        error: str | None = self._result.get("error") or self._result.get("incident")
        return error

    @property
    def code(self) -> str | None:
        """The code of the failure that ended it."""
        code: str | None = self._result.get("code")
        return code

    @property
    def letters(self) -> Letters | None:
        """The dead letters of its store, to be replayed with the manifest that ran; None if it has no
        ``dead_letters``."""
        from tidegate import dlq

        place = str(self._result.get("rejects") or "")
        return None if not place or place.endswith(".ndjson") else dlq.open(place, **self._named)

    def raise_for_status(self) -> Report:
        """Raise the exception of the exit code, if it is not 0; return the report otherwise."""
        kind = errors.of_exit(self.exit_code)
        if kind is None:
            return self
        raised = kind(self.error or self.summary or f"exit code {self.exit_code}")
        raised.code = self.code
        if isinstance(raised, errors.RunError):
            raised.report = self
        if isinstance(raised, errors.TryLater):
            raised.not_before = self.not_before
        raise raised

    def __str__(self) -> str:
        return self.summary or repr(self)

    def __repr__(self) -> str:
        counts = f"committed={self.committed} no_match={self.no_match} dead={self.dead}"
        return f"<Report {self.pipeline} {self.status} exit_code={self.exit_code} {counts}>"

    def _repr_html_(self) -> str:
        color = {0: "#1a7f37", 4: "#9a6700", 5: "#9a6700"}.get(self.exit_code, "#cf222e")
        cell = html.escape
        rows = [
            ("committed", f"{self.committed:,}", ""),
            ("no match", f"{self.no_match:,}", ""),
            ("dead", f"{self.dead:,}", self._reasons()),
        ]
        for name in ("filtered", "deduped", "deleted", "repaired"):
            if self._count(name):
                rows.append((name, f"{self._count(name):,}", ""))
        if self.calls:
            throttled = self._count("throttled")
            rows.append(("calls", f"{self.calls:,}", f"{throttled:,} throttled" if throttled else ""))
        body = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:right'>{cell(count)}</td>"
            f"<td style='text-align:left'>{cell(note)}</td></tr>"
            for name, count, note in rows
        )
        notes = [self.error or ""]
        if self.not_before is not None:
            notes.append(f"not before {self.not_before:%Y-%m-%d %H:%M:%S} UTC")
        if self._result.get("sink"):
            notes.append(f"written to {self._result['sink']}, {self._result.get('crs', '')}")
        notes += [f"warning: {warning}" for warning in self._result.get("warnings") or []]
        said = "".join(f"<div>{cell(note)}</div>" for note in notes if note)
        took = float(self._result.get("elapsed_seconds") or 0)
        return (
            f"<div><b>{cell(self.pipeline)}</b> <b style='color:{color}'>{cell(self.status)}</b> "
            f"in {took:.1f} s, exit code {self.exit_code}<table>{body}</table>{said}</div>"
        )

    def _reasons(self) -> str:
        codes: Mapping[str, int] = self._result.get("rejected_by_code") or {}
        return ", ".join(f"{code} {count:,}" for code, count in codes.items())
