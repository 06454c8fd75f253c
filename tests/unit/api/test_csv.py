"""Tables of the API as CSV."""

from __future__ import annotations

import csv
import io

import pytest
from starlette.testclient import TestClient

V1 = "/api/v1"


@pytest.mark.parametrize("by", ["user", "queue", "gpu-type", "day", "outcome"])
def test_usage_as_csv_is_what_it_is_as_json(client: TestClient, by: str) -> None:
    said = client.get(f"{V1}/usage", params={"by": by}).json()
    answer = client.get(f"{V1}/usage", params={"by": by, "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    assert f"usage-by-{by}.csv" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [float(row["gpu_hours"]) for row in rows] == [row["gpu_hours"] for row in said["rows"]]
    assert rows[0]["currency"] == "EUR"


def test_a_client_may_accept_csv_and_the_parameter_decides(client: TestClient) -> None:
    accepts = {"accept": "text/csv"}
    for page in ("usage", "failures"):
        assert client.get(f"{V1}/{page}", headers=accepts).text.count("\n")
        assert client.get(f"{V1}/{page}", headers=accepts).headers["content-type"][:8] == "text/csv"
        as_json = client.get(f"{V1}/{page}", headers=accepts, params={"format": "json"})
        assert isinstance(as_json.json(), dict)


def test_curves_of_a_node(client: TestClient) -> None:
    found = client.get(f"{V1}/nodes/n0/curves").json()
    assert found["gpus"][0]["device"] == "n0:0"
    assert client.get(f"{V1}/nodes/no/curves").status_code == 404
