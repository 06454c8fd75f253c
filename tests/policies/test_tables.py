"""What each policy does in situations that an ML engineer can picture."""

from __future__ import annotations

import pytest

from tests.policies.cases import Case

TWO_RACKS = "rack r1: n1[8] n2[8]   rack r2: n3[8]"
TWO_NODES = "n1[4] n2[4]"

FIFO = {
    "first come, first served": Case(
        cluster=TWO_NODES,
        jobs="late 4gpu pending 1min | early 4gpu pending 5min | last 4gpu pending 1s",
        want="start early on n1; start late on n2",
    ),
    "the head that does not fit holds everybody up": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu running on n1 attained 1h | head 8gpu pending 5min | small 1gpu pending 1min",
        want="nothing",
    ),
    "a higher priority goes first": Case(
        cluster="n1[4]",
        jobs="old 4gpu pending 5min | urgent 4gpu priority 1 pending 1s",
        want="start urgent on n1",
    ),
    "nobody is suspended for anybody": Case(
        cluster="n1[4]",
        jobs="busy 4gpu running on n1 attained 90h | urgent 4gpu priority 9 pending 5min",
        want="nothing",
    ),
    "a job that fits no single node is spread over the fewest": Case(
        cluster="n1[4] n2[2] n3[4]",
        jobs="wide 8gpu pending 1min",
        want="start wide on n1 n3",
    ),
    "a job takes the fullest node that it fits on": Case(
        cluster=TWO_NODES,
        jobs="busy 2gpu running on n2:2 attained 1h | small 2gpu pending 1min",
        want="start small on n2:2",
    ),
    "a small rack is kept together before the cluster is": Case(
        cluster="rack r1: n1[4] n2[2]   rack r2: n3[4] n4[4]",
        jobs="wide 8gpu pending 1min",
        want="start wide on n3 n4",
    ),
    "parts of GPUs share one": Case(
        cluster="n1[2]",
        jobs="half 0.5gpu running on n1 attained 1h | other 0.5gpu pending 1min | third 0.6gpu pending 1s",
        want="start other on n1:1; start third on n1:1",
    ),
    "who runs on a draining node moves away": Case(
        cluster=TWO_NODES,
        jobs="lucky 2gpu running on n1:2 attained 1h",
        draining="n1",
        want="migrate lucky on n2:2",
    ),
    "who cannot move off a draining node stays": Case(
        cluster="n1[4] n2[2]",
        jobs="large 4gpu running on n1 attained 1h",
        draining="n1",
        want="nothing",
    ),
}

SKIP = {
    "any job that fits may overtake the head": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu running on n1 attained 1h | head 8gpu pending 5min | small 1gpu pending 1min",
        want="start small on n2:1",
        options={"backfill": "skip"},
    ),
}

EASY = {
    "a job that ends before the head can start may overtake": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu needs 2h running on n1 attained 4h | head 8gpu needs 1h pending 5min"
        " | short 2gpu needs 50min pending 1min",
        want="start short on n2:2; reserve n2:2 for head",
        options={"backfill": "easy"},
    ),
    "one that would delay the head may not": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu needs 2h running on n1 attained 4h | head 8gpu needs 1h pending 5min"
        " | long 2gpu needs 61min pending 1min",
        want="reserve n2 for head",
        options={"backfill": "easy"},
    ),
    "a long one may take what the head will not need": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu needs 2h running on n1 attained 4h | head 6gpu needs 1h pending 5min"
        " | long 2gpu needs 9h pending 1min | more 1gpu needs 9h pending 1s",
        want="start long on n2:2; reserve n2:2 for head",
        options={"backfill": "easy"},
    ),
    "without estimates nothing may overtake": Case(
        cluster=TWO_NODES,
        jobs="busy 4gpu running on n1 attained 4h | head 8gpu pending 5min | small 1gpu pending 1min",
        want="reserve n2 for head",
        options={"backfill": "easy"},
    ),
}

ELASTIC = {
    "a rigid job waits for its nominal number": Case(
        cluster="n1[4]",
        jobs="busy 1gpu running on n1:1 attained 1h | soft 4gpu elastic 2..8 pending 1min",
        want="nothing",
    ),
    "a moldable one takes what there is": Case(
        cluster="n1[4]",
        jobs="busy 1gpu running on n1:1 attained 1h | soft 4gpu elastic 2..8 pending 1min",
        want="start soft on n1:3",
        options={"elastic": "moldable"},
    ),
    "a malleable one grows into idle GPUs of its node": Case(
        cluster="n1[4] n2[4]",
        jobs="soft 2gpu elastic 1..8 running on n1:2 attained 1h",
        want="resize soft on n1",
        options={"elastic": "malleable"},
    ),
    "and gives them back when somebody waits": Case(
        cluster="n1[4]",
        jobs="soft 2gpu elastic 1..8 running on n1 grown 4 attained 1h | hard 2gpu pending 1s",
        want="resize soft on n1:2; start hard on n1:2",
        options={"elastic": "malleable"},
    ),
}

YARN = {
    "a gang that cannot be together waits, and so does everybody": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 1h | b 2gpu running on n2:2 attained 1h"
        " | gang 4gpu pending 5min | small 1gpu pending 1min",
        want="nothing",
    ),
    "a gang takes the fewest nodes that can hold it": Case(
        cluster=TWO_RACKS,
        jobs="gang 16gpu pending 5min",
        want="start gang on n1 n2",
    ),
    "with skip the small one goes by": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 1h | b 2gpu running on n2:2 attained 1h"
        " | gang 4gpu pending 5min | small 1gpu pending 1min",
        want="start small on n1:1",
        options={"backfill": "skip"},
    ),
}

SRTF = {
    "the shorter one takes the GPUs of the longer": Case(
        cluster="n1[4]",
        jobs="long 4gpu needs 9h running on n1 attained 4h | short 4gpu needs 1h pending 1min",
        want="suspend long; start short on n1",
    ),
    "one with less left keeps them": Case(
        cluster="n1[4]",
        jobs="long 4gpu needs 9h running on n1 attained 34h | short 4gpu needs 1h pending 1min",
        want="nothing",
    ),
    "size does not count": Case(
        cluster="n1[4]",
        jobs="wide 4gpu needs 2h pending 1min | narrow 1gpu needs 3h pending 2min",
        want="start wide on n1",
    ),
    "equal ones go in order of submission": Case(
        cluster="n1[1]",
        jobs="b 1gpu needs 1h pending 1min | a 1gpu needs 1h pending 2min",
        want="start a on n1",
    ),
}

SRSF = {
    "size counts: a narrow long job goes before a wide short one": Case(
        cluster="n1[4]",
        jobs="wide 4gpu needs 2h pending 1min | narrow 1gpu needs 3h pending 2min",
        want="start narrow on n1:1",
    ),
    "just as many go as are needed, those with most left": Case(
        cluster="n1[4]",
        jobs="most 2gpu needs 9h running on n1:2 attained 2s | more 2gpu needs 8h running on n1:2 attained 2s"
        " | new 2gpu needs 1h pending 1min",
        want="suspend most; start new on n1:2",
    ),
}

LAS = {
    "a newcomer takes the GPUs of the job that had most": Case(
        cluster=TWO_RACKS,
        jobs="old 16gpu running on n1 n2 attained 40h | less 8gpu running on n3 attained 1h"
        " | new 16gpu pending 5min",
        want="suspend old; start new on n1 n2",
    ),
    "the job that had less resumes": Case(
        cluster="n1[4]",
        jobs="a 4gpu running on n1 attained 2h | b 4gpu suspended attained 1h waited 1h",
        want="suspend a; resume b on n1",
    ),
    "the job that had more goes on waiting": Case(
        cluster="n1[4]",
        jobs="a 4gpu running on n1 attained 1h | b 4gpu suspended attained 2h waited 9h",
        want="nothing",
    ),
    "service is GPUs x time: an hour on four is more than two on one": Case(
        cluster="n1[4]",
        jobs="wide 4gpu suspended attained 4h waited 1h | narrow 1gpu suspended attained 2h waited 1h",
        want="resume narrow on n1:1",
    ),
}

TIRESIAS = {
    "a newcomer takes the rack of a job past its service threshold": Case(
        cluster=TWO_RACKS,
        jobs="old 16gpu running on n1 n2 attained 40h | new 16gpu pending 5min",
        want="suspend old; start new on n1 n2",
    ),
    "below the threshold nobody is suspended": Case(
        cluster="n1[4]",
        jobs="old 4gpu running on n1 attained 3249s | new 4gpu pending 5min",
        want="nothing",
    ),
    "at the threshold it is demoted": Case(
        cluster="n1[4]",
        jobs="old 4gpu running on n1 attained 3252s | new 4gpu pending 5min",
        want="suspend old; start new on n1",
    ),
    "inside a queue the first to have started goes first, however much it had": Case(
        cluster="n1[4]",
        jobs="first 4gpu suspended attained 3000s waited 2h | second 4gpu running on n1 attained 40s",
        want="suspend second; resume first on n1",
    ),
    "a skewed model is not spread": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 1s | b 2gpu running on n2:2 attained 1s"
        " | vgg 4gpu model vgg16 pending 5min",
        want="nothing",
    ),
    "one that is not skewed is": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 1s | b 2gpu running on n2:2 attained 1s"
        " | res 4gpu model resnet50 pending 5min",
        want="start res on n1:2 n2:2",
    ),
    "with a pack limit of 1 nobody insists": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 1s | b 2gpu running on n2:2 attained 1s"
        " | vgg 4gpu model vgg16 pending 5min",
        want="start vgg on n1:2 n2:2",
        options={"pack_limit": 1},
    ),
    "room together is made on the node of the last to have started, which moves": Case(
        cluster=TWO_NODES,
        jobs="a 2gpu running on n1:2 attained 3h | b 2gpu running on n2:2 attained 2h"
        " | vgg 4gpu model vgg16 pending 5min",
        want="migrate b on n1:2; start vgg on n2",
    ),
    "a starved job is promoted and takes its turn": Case(
        cluster="n1[4]",
        jobs="starved 4gpu suspended attained 4h waited 3h | now 4gpu running on n1 attained 40s",
        want="suspend now; resume starved on n1",
        options={"promote_knob": 2},
    ),
    "without the knob it starves on": Case(
        cluster="n1[4]",
        jobs="starved 4gpu suspended attained 4h waited 3h | now 4gpu running on n1 attained 40s",
        want="nothing",
    ),
    "patience is the knob times what it has run": Case(
        cluster="n1[4]",
        jobs="starved 4gpu suspended attained 4h waited 3h | now 4gpu running on n1 attained 40s",
        want="nothing",
        options={"promote_knob": 4},
    ),
}

TABLES = {
    "fifo": {**FIFO, **SKIP, **EASY, **ELASTIC},
    "yarn-cs": YARN,
    "srtf": SRTF,
    "srsf": SRSF,
    "las": LAS,
    "tiresias-l": TIRESIAS,
}


@pytest.mark.parametrize(
    ("policy", "case"),
    [
        pytest.param(policy, case, id=f"{policy}: {sentence}")
        for policy, table in TABLES.items()
        for sentence, case in table.items()
    ],
)
def test_situation(policy: str, case: Case) -> None:
    assert case.done_by(policy) == "; ".join(sorted(case.want.split("; ")))
