"""The figures about failures: each ratio is against no rules on the same cluster with the same failures."""

from __future__ import annotations

from benchmarks import failures


def run(rules: str, seed: int, lost: float, cluster: str = "philly") -> dict[str, object]:
    return {
        "cluster": cluster,
        "rules": rules,
        "seed": seed,
        "jobs_per_input": 4.0,
        "lost_gpu_hours": lost,
        "reasons": {"syntax-error": lost, "mpi-error": lost / 2},
    }


def test_ratios_are_within_a_cluster_and_a_seed() -> None:
    runs = [
        *(run("none", 0, 100.0), run("retry", 0, 40.0)),
        *(run("none", 1, 200.0), run("retry", 1, 100.0)),
        *(run("none", 0, 50.0, "crowded"), run("retry", 0, 50.0, "crowded")),
    ]
    found = failures.with_ratios(runs)
    assert [each["ratio"] for each in found] == [1.0, 0.4, 1.0, 0.5, 1.0, 1.0]


def test_a_row_is_the_mean_over_the_seeds() -> None:
    runs = [
        run(rules, seed, 100.0 if rules == "none" else 20.0 * (seed + 1))
        for rules in failures.RULES
        for seed in (0, 1)
    ]
    rows = failures.rows_of(failures.with_ratios(runs))
    assert [row["rules"] for row in rows] == list(failures.RULES)
    retry = rows[1]
    assert (retry["lost_gpu_hours"], retry["least"], retry["most"]) == (30.0, 0.2, 0.4)
    worst = failures.reason_rows(runs)[0]
    assert (worst["reason"], worst["none"], worst["retry"]) == ("syntax-error", 100.0, 20.0)


def test_every_run_has_one_without_rules_to_compare_it_with() -> None:
    planned = failures.plan(2)
    assert len(planned) == len(set(planned))
    bare = {(cluster, seed) for cluster, rules, seed, _ in planned if rules == "none"}
    assert {(cluster, seed) for cluster, _, seed, _ in planned} == bare
