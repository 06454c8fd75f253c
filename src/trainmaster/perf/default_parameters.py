"""The numbers of the default performance model, each with its source (docs/perf.md tells more).

Philly = ATC'19, Tiresias = NSDI'19, Gandiva = OSDI'18, AntMan = OSDI'20, Gavel = OSDI'20; H200 = measured
for this project on one NVIDIA H200.
"""

from __future__ import annotations

from trainmaster.model.placement import Sharing
from trainmaster.model.units import NOMINAL, SECOND
from trainmaster.perf.gpu_interference import SharedGpu, SharingLaw
from trainmaster.perf.locality import Locality
from trainmaster.perf.model_zoo import DEFAULT_MODEL
from trainmaster.perf.network_contention import NetworkContention
from trainmaster.perf.preemption_cost import PreemptionCost
from trainmaster.perf.scaling import Elasticity

# Philly's ResNet-50: 98.0 against 114.8 images/s on another server; between racks: the same loss once
# more, as no source measured it.
_UNKNOWN = {"rack": 853_700, "fabric": 728_800, "cluster": 728_800}
# Gandiva, Figures 1-4, VGG16 on two GPUs: under one PCIe switch 1, in one socket 0.81, across sockets 0.60.
# An island that is neither counts as a socket.
_INSIDE_VGG16 = {"socket": 810_000, "island": 810_000, "node": 600_000}
_NO_LOSS = {"rack": NOMINAL, "fabric": NOMINAL, "cluster": NOMINAL}
# chronus' model_info: VGG16 on 4 GPUs over 2 and 4 nodes; its sisters have the same largest tensor.
_NODES_VGG = {4: {2: 580_000, 4: 320_000}}

LOCALITY = Locality(
    spans=_UNKNOWN,
    # Tiresias, Figure 3: random against consolidated placement; gains are not credited. Between racks
    # the loss of unknown models once more.
    models={
        "vgg19": {**_INSIDE_VGG16, "rack": 720_000, "fabric": 614_700, "cluster": 614_700},
        "vgg16": {**_INSIDE_VGG16, "rack": 730_000, "fabric": 623_200, "cluster": 623_200},
        "vgg11": {**_INSIDE_VGG16, "rack": 770_000, "fabric": 657_300, "cluster": 657_300},
        "alexnet": {**_INSIDE_VGG16, "rack": 800_000, "fabric": 683_000, "cluster": 683_000},
        "resnet152": _NO_LOSS,
        "resnet101": _NO_LOSS,
        "resnet50": _NO_LOSS,
        "inception4": _NO_LOSS,
        "inception3": _NO_LOSS,
        "googlenet": _NO_LOSS,
    },
    node_counts={
        "vgg19": _NODES_VGG,
        "vgg16": _NODES_VGG,
        "vgg11": _NODES_VGG,
        # Philly for 2 GPUs (98.0 / 114.8); Gandiva for 4: 780, 560, 325 images/s on 1, 2, 4.
        "resnet50": {2: {2: 853_700}, 4: {2: 717_900, 4: 416_700}},
        # Gandiva: 510, 497, 285 images/s.
        "inception3": {4: {2: 974_500, 4: 558_800}},
    },
    widths={
        # Philly's 16-GPU jobs on 2, 4, 8 servers: utilisation 43.66, 40.94, 28.56 %.
        DEFAULT_MODEL: {200: 937_700, 400: 654_100},
        # Tiresias, Figure 3 again: its 8 workers needed two machines of 4 at least.
        "vgg19": {200: 720_000},
        "vgg16": {200: 730_000},
        "vgg11": {200: 770_000},
        "alexnet": {200: 800_000},
        "resnet152": {200: NOMINAL},
        "resnet101": {200: NOMINAL},
        "resnet50": {200: NOMINAL},
        "inception4": {200: NOMINAL},
        "inception3": {200: NOMINAL},
        "googlenet": {200: NOMINAL},
    },
)

_UNTOUCHED = {2: NOMINAL}
# Gandiva: 1, 2 and 4 jobs on a NIC.
_NIC_INCEPTION3 = {2: 835_000, 4: 700_000}
_NIC_DEEPSPEECH = {2: 950_000, 4: 950_000}
# A model that does not suffer from distance exchanges little: Tiresias, Figure 3.
_QUIET = dict.fromkeys(("resnet152", "resnet101", "inception4", "googlenet"), _UNTOUCHED)

NEIGHBOURS = NetworkContention(
    server={
        # A model that was not measured: the mean of three that were, two jobs on one NIC (Gandiva).
        DEFAULT_MODEL: {2: 850_000},
        # Philly's ResNet-50 on one server: 75.6 beside another job against 114.8 images/s alone.
        "resnet50": {2: 658_500},
        # These two were not measured on a shared server: what they lose on a shared NIC.
        "inception3": _NIC_INCEPTION3,
        "deepspeech": _NIC_DEEPSPEECH,
        **_QUIET,
    },
    nic={
        DEFAULT_MODEL: {2: 850_000},
        # Philly's on two servers, 74.1 against 98.0 images/s, has 0.756.
        "resnet50": {2: 765_000, 4: 530_000},
        "inception3": _NIC_INCEPTION3,
        "deepspeech": _NIC_DEEPSPEECH,
        **_QUIET,
    },
)

# Utilisation is the part of the time that a job alone keeps the GPU busy. In benchmarks/results/
# packing_gpu.json the GPU does 782 steps/s of a small job by turns, so that it uses 1000 / 782 / 2.503 ms =
# 0.51 of it alone. Under MPS its steps take 6.134 / 10.226 = 0.60 of that, as kernels run side by side. Jobs
# that fill the GPU take 12.47 ms a step by turns and 10.3 under MPS, 11.34 alone.
H200 = {
    Sharing.TIME: {NOMINAL // 2: NOMINAL, NOMINAL: 1_100_000},
    Sharing.MPS: {NOMINAL // 2: 600_000, NOMINAL: 910_000},
}

PAIRS = {
    # Gandiva, Figures 1-4.
    ("lm", "lm"): 810_000,
    ("gnmt", "lm"): 955_000,
    ("lm", "gnmt"): 900_000,
    ("resnet50", "lm"): 990_000,
    ("lm", "resnet50"): NOMINAL,
    # Gavel's V100 pairs: ResNet-50(64), ResNet-18(128), Transformer(64), A3C, Recommendation(8192).
    ("resnet50", "resnet50"): 500_000,
    ("resnet50", "resnet18"): 730_000,
    ("resnet18", "resnet50"): 640_000,
    ("resnet50", "transformer"): 580_000,
    ("transformer", "resnet50"): 210_000,
    ("resnet18", "resnet18"): 780_000,
    ("a3c", "a3c"): 510_000,
    ("recommendation", "recommendation"): 590_000,
    ("recommendation", "resnet50"): 200_000,
    ("resnet50", "recommendation"): 600_000,
}

SHARED_GPU = SharedGpu(
    law=SharingLaw.H200,
    costs=H200,
    # The best fit to three experiments of 1 to 8 jobs, 27 points (docs/perf.md).
    contention_ppm=200_000,
    pairs=PAIRS,
    # AntMan, Table 5: 9,895 of 10,000 guaranteed jobs lose nothing, 76 up to 3 %.
    tolerance_ppm=30_000,
    # So that every opportunistic job ends; at most the tolerance, which guaranteed jobs bear.
    floor_ppm=30_000,
)

DRIVER_SAVE, DRIVER_LOAD = 1_900_000_000, 5_700_000_000
"""H200, cuCheckpointProcess*: bytes a second out of and into a GPU (benchmarks.gpu.freeze_thaw)."""
COOPERATIVE_SAVE, COOPERATIVE_LOAD = 49 << 30, 47 << 30
"""H200, 16 GiB of tensors to pinned host memory inside the process and back (benchmarks.gpu.cooperative)."""

PREEMPTION_COST = PreemptionCost(
    # No start_ms: run times of traces were measured from the first launch on, and hold it already.
    # A job that states no memory moves all of its GPU's: 16 GiB take 9.0 s out and 3.0 s in. With 18 s to
    # start the program again that makes 30 s per preemption.
    resume_ms=18 * SECOND,
    # What 1 and 2 GiB took beyond their bytes.
    thaw_ms=100,
    resize_ms=18 * SECOND,
    save_bytes_s=DRIVER_SAVE,
    load_bytes_s=DRIVER_LOAD,
)

DETECTION_MS = 14 * SECOND
"""A killed raylet is marked dead by Ray's health checks after so long, measured; a frozen one after 64 s."""

# Median gain of a doubling in Gavel's consolidated tables: 1.737 (168 pairs, three GPU types).
ELASTICITY = Elasticity(doubling_ppm=868_000)

SPLIT_PPM = 985_000
"""A model split over GPUs by m-ETF against one GPU: 465-466 ms a step against 457-460
(BaechiPyTorch, Inception-v3 of batch 64 on four GPUs)."""
