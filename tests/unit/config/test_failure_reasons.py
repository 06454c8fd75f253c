"""The table of reasons and an operator's file of them."""

from __future__ import annotations

import pytest

from trainmaster.config.failure_reasons import read_table
from trainmaster.config.validation import ConfigError
from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify
from trainmaster.failures.reason_table import Memory
from trainmaster.model.failure import MEMORY_TAKEN_REASON, Blame, RetryRule

STUDY = """
host-out-of-memory incorrect-input semantic-error core-dump illegal-memory-access checkpoint-error cuda-error
syntax-error traceback-from-crash mpi-error cuda-out-of-memory mpi-runtime-failure permission-error
import-error job-preempted cuda-init-failed model-diverged cuda-version-mismatch gpu-ecc-error
output-node-error library-not-loaded unknown
"""
"""The 22 reasons of Microsoft's study, by our keys."""

LICENCE = """
reasons:
- key: licence-server
  title: no licence
  blame: platform
  retry: always
  advice: Ask the licence server's owner.
  exceptions: LicenceError
  lines: ['licence server \\S+ is down']
- key: missing-file
  advice: Mount the data first.
  exceptions: 'dataset (?P<path>\\S+) is not mounted'
"""


def test_the_reasons_of_the_study_are_there() -> None:
    table = built_in_table()
    assert len(STUDY.split()) == 22
    assert {key for key in STUDY.split() if key not in table.by_key} == set()


def test_every_reason_has_an_advice_of_one_sentence() -> None:
    for row in built_in_table().rows:
        assert row.advice.endswith("."), row.key
        is_shown = bool(row.exceptions or row.lines or row.signals)
        assert is_shown == (row.key != MEMORY_TAKEN_REASON), row.key


def test_a_reason_that_the_table_has_no_more_keeps_its_name() -> None:
    row = built_in_table().of("licence-server")
    assert (row.key, row.title) == ("licence-server", "licence server")
    assert "no row for this reason any more" in row.advice


def test_rows_of_a_file_come_first_and_add_to_ours() -> None:
    table = read_table(LICENCE, built_in_table())
    row = table.of("licence-server")
    assert (row.blame, row.retry) == (Blame.PLATFORM, RetryRule.ALWAYS)
    mine = classify(Evidence(1, lines=("pkg.LicenceError: none is free",)), table)
    assert mine.reason == "licence-server"
    line = classify(Evidence(1, lines=("licence server a7 is down",)), table)
    assert line.reason == "licence-server"
    data = classify(Evidence(1, lines=("RuntimeError: dataset /data/x is not mounted",)), table)
    assert (data.reason, data.path) == ("missing-file", "/data/x")
    assert table.of("missing-file").title == built_in_table().of("missing-file").title
    assert table.of("missing-file").advice == "Mount the data first."


CACHE = """
reasons:
- key: cache-too-small
  title: no room for the cache
  blame: user
  retry: more-memory
  memory: gpu
  advice: Use a shorter context.
  exceptions: CacheError
- key: data-loader-worker-died
  retry: more-memory
  memory: host
- key: host-out-of-memory
  retry: never
"""


def test_a_row_says_which_memory_the_next_attempt_has_more_of() -> None:
    table = read_table(CACHE, built_in_table())
    found = {key: table.of(key).memory for key in ("cache-too-small", "data-loader-worker-died")}
    assert found == {"cache-too-small": Memory.GPU, "data-loader-worker-died": Memory.HOST}
    assert table.of("cuda-out-of-memory").memory is Memory.GPU
    assert table.of("host-out-of-memory").retry is RetryRule.NEVER


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reasons: []", "my.yaml: line 1: reasons must not be empty."),
        (
            "reasons:\n- key: x\n",
            "my.yaml: line 2: reasons[1] is a new reason, so it needs: title, blame, retry, advice, what"
            " shows it (such as exceptions, lines, exit_codes or signals).",
        ),
        (
            "reasons:\n- key: x\n  title: x\n  blame: user\n  retry: never\n  advice: x\n",
            "so it needs: what shows it (such as exceptions, lines, exit_codes or signals).",
        ),
        ("- key: x\n", "my.yaml must map keys to values; docs/failures.md shows one."),
        ("reasons:\n- key: Mine\n", "reasons[1].key must be a name such as my-reason, not 'Mine'."),
        ("reasons:\n- key: unknown\n", "reasons[1].key must be a name such as my-reason"),
        ("reasons:\n- key: core-dump\n  lines: '('\n", "is not a regular expression: '('"),
        ("reasons:\n- key: core-dump\n  lines: 'x*'\n", "would match everything: 'x*'."),
        (
            "reasons:\n- key: core-dump\n  blame: me\n",
            "must be user, platform or unknown, not 'me'.",
        ),
        (
            "reasons:\n- key: core-dump\n  signals: 9\n",
            "must be the name of a signal such as SIGSEGV",
        ),
        (
            "reasons:\n- key: core-dump\n  exit_codes: 300\n",
            "exit_codes must be at most 255, not 300.",
        ),
        ("reasons:\n- key: core-dump\n- key: core-dump\n", "is a second 'core-dump'."),
        ("reasons:\n- key: core-dump\n  pattern: x\n", "pattern"),
        (
            "reasons:\n- key: core-dump\n  retry: more-memory\n",
            "my.yaml: line 2: reasons[1] is retried with more-memory, so it needs memory: gpu or host.",
        ),
        (
            "reasons:\n- key: core-dump\n  memory: gpu\n",
            "my.yaml: line 2: reasons[1] has memory, but its retry is once, not more-memory.",
        ),
        (
            "reasons:\n- key: cuda-out-of-memory\n  memory: disk\n",
            "memory must be gpu or host, not 'disk'.",
        ),
        ("reasons: [", "my.yaml: "),
    ],
)
def test_a_wrong_file_gets_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_table(text, built_in_table(), "my.yaml")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
