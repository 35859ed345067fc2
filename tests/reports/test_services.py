"""Reports of table services: entries from what services give back."""

from __future__ import annotations

import json

from lakebed.model.instant import InstantTime
from lakebed.reports.report import encode_json
from lakebed.reports.services import ServiceEntry, pass_report, result_entry, rollback_entries, run_entry
from lakebed.services.table_services import Done
from lakebed.services.values import ServiceResult

AT, ENDED = InstantTime("20261116093000000"), InstantTime("20261116093001000")
FAILED = Done("clean", problem="no answer", milliseconds=8)


def test_the_entry_of_a_result() -> None:
    assert result_entry("compaction", None) == ServiceEntry("compaction", None, "nothing to do")
    done = ServiceResult(AT, ENDED, "clustering", {"files": 3})
    assert result_entry("", done) == ServiceEntry("clustering", AT, "done", {"files": 3})
    poorer = ServiceResult(AT, ENDED, "restore", missing=("record_index", "bloom_filters"))
    assert result_entry("", poorer).state == "done, but without record_index, bloom_filters: see `lakebed doctor`"


def test_a_pass_says_what_failed() -> None:
    report = pass_report("t", (Done("compaction", AT), FAILED))
    assert [(entry.service, entry.instant, entry.state) for entry in report.services] == [
        ("compaction", AT, "done"),
        ("clean", None, "no answer"),
    ]
    assert rollback_entries([AT]) == (ServiceEntry("rollback", AT, "rolled back"),)


def test_a_line_of_the_runner_has_its_fields_in_order() -> None:
    line = encode_json(run_entry(FAILED, "2026-11-16T09:30:00Z"), indent=None)
    assert list(json.loads(line).items()) == [
        ("time", "2026-11-16T09:30:00Z"),
        ("service", "clean"),
        ("instant", None),
        ("milliseconds", 8),
        ("outcome", "failed"),
        ("problem", "no answer"),
    ]
