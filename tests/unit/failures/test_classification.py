"""The cause comes before what followed from it, and what is not known is not guessed."""

from __future__ import annotations

import pytest

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, RankLog, classify
from trainmaster.failures.reason_table import ReasonTable
from trainmaster.model.failure import UNKNOWN_REASON, Blame, Failure, RetryRule

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
PEER_GONE = "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:10895"


def traceback(exception: str, prefix: str = "") -> tuple[str, ...]:
    lines = (
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in <module>',
        "    go()",
    )
    return tuple(f"{prefix}{line}" for line in (*lines, exception))


def failure_of(*lines: str, code: int = 1, **others: object) -> Failure:
    return classify(Evidence(code, rank=0, lines=lines, **others), built_in_table())  # type: ignore[arg-type]


def test_the_frame_and_the_exception_are_shown() -> None:
    found = failure_of("epoch 1", *traceback(OUT_OF_MEMORY), "  3%|3 | 31/1000 [00:41<21:39]")
    assert (found.reason, found.blame, found.rank) == ("cuda-out-of-memory", Blame.USER, 0)
    assert found.lines == ('File "train.py", line 9, in <module>', "go()", OUT_OF_MEMORY)


@pytest.mark.parametrize(
    "link",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_of_a_chain_the_first_explicit_exception_is_the_cause(link: str) -> None:
    full = "OSError: [Errno 28] No space left on device"
    assert failure_of(*traceback(OUT_OF_MEMORY), "", link, "", *traceback(full)).reason == (
        "cuda-out-of-memory"
    )
    lookup = traceback("KeyError: 'adam'")
    assert failure_of(*lookup, "", link, "", *traceback(full)).reason == "disk-full"


def test_an_exception_of_its_own_is_unknown_whatever_was_written_before() -> None:
    found = failure_of("Segmentation fault of the moon", *traceback("train.Tired: 3 of 4"))
    assert (found.reason, found.lines[-1]) == ("unknown", "train.Tired: 3 of 4")


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: the batch provider reported that it was aborted: UNSUPPORTED",
        "TimeoutError: timed out waiting for the coffee machine",
        "RuntimeError: ambiguous result of the vote",
        "RuntimeError: validation accuracy 0.31 is below the threshold of 0.5",
        "RuntimeError: memory of the replay buffer is too small for the batch",
        "RuntimeError: worker 3 is unhappy with its gradient",
        "ValueError: invalid schedule: warmup longer than training",
        "RuntimeError: the checkpoint interval must divide the number of steps",
        "RuntimeError: the loss is not improving, giving up",
        "ValueError: port must be even",
    ],
)
def test_messages_that_only_sound_like_others_are_unknown(message: str) -> None:
    assert failure_of(*traceback(message)).reason == "unknown"


def test_a_traceback_that_the_program_survived_is_not_the_cause() -> None:
    after = ("step 7 loss 0.21", "step 8 loss 0.20")
    assert failure_of(*traceback(OUT_OF_MEMORY), *after).reason == "unknown"
    own = failure_of(*traceback(OUT_OF_MEMORY), *after, *traceback("KeyError: 'x'"))
    assert own.reason == "semantic-error"


STOPS = "Validation accuracy too low, stopping."


def test_one_step_after_a_traceback_shows_that_it_was_survived() -> None:
    found = failure_of("step 1", *traceback(OUT_OF_MEMORY), "step 2", STOPS, code=3)
    assert (found.reason, found.lines) == ("unknown", (STOPS,))
    told = traceback("train.Tired: too much")
    assert failure_of(*told, "  at step 12 of 40").lines[-1] == "at step 12 of 40"


def test_a_traceback_that_was_survived_before_is_survived_again() -> None:
    once = traceback(OUT_OF_MEMORY)
    assert failure_of(*once, "step 1", *once, STOPS, code=3).reason == "unknown"
    assert failure_of(*once, "step 1", *once).reason == "cuda-out-of-memory"
    assert failure_of("step 1", *once, STOPS, code=3).reason == "cuda-out-of-memory"


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/data/optional_cache.bin'"
SIZES = "RuntimeError: Sizes of tensors must match except in dimension 0. Expected 3 but got 4."
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("logged", "between", "fatal", "reason"),
    [
        (MISSING, ("INFO epoch 1 started", "loading data..."), SIZES, "shape-mismatch"),
        ("KeyError: 'a'", ("going on",), SIZES, "shape-mismatch"),
        ("KeyError: 'a'", (), SIZES, "shape-mismatch"),
        ("KeyError: 'a'", ("loading data...",), REFUSED, "network-error"),
        (MISSING, ("loading data...",), "train.Tired: 3 of 4", "unknown"),
    ],
)
def test_the_last_traceback_of_a_rank_ended_it_and_not_a_logged_one(
    logged: str, between: tuple[str, ...], fatal: str, reason: str
) -> None:
    found = failure_of(
        "ERROR:root:no cache, going on without", *traceback(logged), *between, *traceback(fatal)
    )
    assert (found.reason, found.lines[-1], found.path) == (reason, fatal, "")


def test_before_a_symptom_or_an_exit_the_last_logged_traceback_counts() -> None:
    logged = (*traceback("KeyError: 'a'"), "loading data...", *traceback(SIZES))
    assert failure_of(*logged).reason == "shape-mismatch"
    assert failure_of(*logged, *traceback(PEER_GONE)).reason == "shape-mismatch"
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    assert failure_of(*logged, *traceback(child)).reason == "shape-mismatch"


def test_an_exception_that_python_ignored_ended_nothing() -> None:
    ignored = "Exception ignored in: <function Loader.__del__ at 0x7f>"
    late = (ignored, *traceback("AssertionError: can only test a child process"))
    assert failure_of(*traceback(SIZES), *late).reason == "shape-mismatch"
    assert failure_of(*late, *traceback(SIZES)).reason == "shape-mismatch"


def test_a_last_word_about_the_end_is_not_progress() -> None:
    said = ("Training was aborted at step 512", "epoch 3: saving what there is", "loss: 0.3")
    assert failure_of(*traceback(OUT_OF_MEMORY), *said).reason == "cuda-out-of-memory"


def test_a_line_that_says_why_it_stops_at_a_step_is_not_progress_either() -> None:
    said = ("step 11 loss 9.1", "step 12: loss is nan, stopping training")
    assert failure_of(*said).reason == "model-diverged"


def test_warnings_and_words_are_not_signatures() -> None:
    said = (
        "WARNING: [Errno 28] No space left on device",
        "this run is not out of memory",
        "CUDA error rate: 0 of 100; timeouts 0",
        "I1116 10:00:00 manager.py:3] Killed 3 stale workers",
    )
    assert failure_of(*said).reason == "unknown"


def test_of_a_gang_the_rank_with_the_cause_is_named() -> None:
    others = (RankLog(1, traceback(PEER_GONE)), RankLog(2, traceback(OUT_OF_MEMORY)))
    found = failure_of(*traceback(PEER_GONE), others=others)
    assert (found.reason, found.rank) == ("cuda-out-of-memory", 2)


def test_the_process_that_shows_it_is_told_apart_from_the_rank_that_its_launcher_names() -> None:
    named = (*traceback(OUT_OF_MEMORY), "Root Cause (first observed failure):", "[0]:")
    third = (*named, "  rank      : 3 (local_rank: 1)")
    found = failure_of(
        *traceback(PEER_GONE), others=(RankLog(1, tuple(f"[rank3]: {line}" for line in third)),)
    )
    assert (found.reason, found.rank, found.shown_by) == ("cuda-out-of-memory", 3, 1)
    found = failure_of(*third)
    assert (found.rank, found.shown_by) == (3, 0)
    assert failure_of(*traceback(OUT_OF_MEMORY)).process is None, "it is the rank itself"


def test_the_first_rank_counts_where_its_own_exception_is_unknown() -> None:
    others = (RankLog(1, traceback(OUT_OF_MEMORY)),)
    found = failure_of(*traceback("ValueError: stage 3 is not there"), others=others)
    assert (found.reason, found.rank) == ("unknown", 0)


def test_where_the_first_shows_a_symptom_an_unknown_exception_of_another_is_the_cause() -> None:
    raised = traceback("train.Tired: 3 of 4")
    found = failure_of(*traceback(PEER_GONE), others=(RankLog(1, raised),))
    assert (found.reason, found.rank, found.lines[-1]) == ("unknown", 1, "train.Tired: 3 of 4")
    others = (RankLog(1, raised), RankLog(2, traceback(OUT_OF_MEMORY)))
    assert failure_of(*traceback(PEER_GONE), others=others).rank == 2, "a known one says more"
    assert failure_of("step 3", others=(RankLog(1, raised),)).rank == 0, "it shows no symptom"


def test_symptoms_count_where_there_is_nothing_else() -> None:
    found = failure_of(*traceback(PEER_GONE), others=(RankLog(1, traceback(PEER_GONE)),))
    assert (found.reason, found.rank) == ("peer-connection-lost", 0)


def test_ranks_in_one_log_are_told_apart() -> None:
    ours, theirs = traceback(PEER_GONE, "[rank0]: "), traceback(OUT_OF_MEMORY, "[rank3]: ")
    mixed = [line for pair in zip(ours, theirs, strict=True) for line in pair]
    found = failure_of(*mixed, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    assert (found.reason, found.rank) == ("cuda-out-of-memory", 3)


def test_a_launcher_tells_the_signal_and_the_rank_of_its_child() -> None:
    found = failure_of(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "Root Cause (first observed failure):",
        "  rank      : 5 (local_rank: 1)",
        "  exitcode  : -11 (pid: 14750)",
    )
    assert (found.reason, found.rank) == ("core-dump", 5)


def test_what_the_engine_knows_counts_first() -> None:
    why = "Rank 0 used more host memory than the 64 MiB that it may; raise `memory`."
    found = failure_of("Killed", code=137, signal="SIGKILL", why=why)
    assert (found.reason, found.lines) == ("host-out-of-memory", (why,))


@pytest.mark.parametrize(
    ("code", "signal", "reason"),
    [
        (139, "SIGSEGV", "core-dump"),
        (137, "SIGKILL", "killed-by-signal"),
        (127, "", "command-not-found"),
        (152, "SIGXCPU", "time-limit"),
        (3, "", "unknown"),
    ],
)
def test_an_end_without_a_word(code: int, signal: str, reason: str) -> None:
    assert failure_of(code=code, signal=signal).reason == reason


@pytest.mark.parametrize("code", [126, 127, 130, 137, 139, 143])
def test_an_exit_is_not_told_as_a_signal_or_as_a_command_that_is_missing(code: int) -> None:
    found = failure_of("ready", "step 1", "step 2", code=code, ran_ms=2_500)
    assert (found.reason, found.signal, found.lines) == ("unknown", "", ("step 2",))
    assert failure_of(code=code, ran_ms=2_500).reason == "unknown"


def test_a_shell_that_found_no_command_says_so_or_says_nothing() -> None:
    assert failure_of(code=127, ran_ms=20).reason == "command-not-found"
    said = failure_of("step 1", "train.sh: 3: evaluate: not found", code=127, ran_ms=90_000)
    assert said.reason == "command-not-found"


def test_a_run_that_is_lost() -> None:
    lost = classify(Evidence(why="Its supervisor is gone.", is_lost=True), built_in_table())
    assert (lost.reason, lost.blame, lost.exit_code) == ("lost-heartbeat", Blame.PLATFORM, None)
    assert lost.lines == ("Its supervisor is gone.",)


def test_a_run_that_was_not_started_since_its_node_does_not_see_its_files() -> None:
    why = "The node n1 does not see /data/a b: put that on storage that all nodes share."
    found = classify(Evidence(why=why, is_lost=True), built_in_table())
    assert (found.reason, found.blame, found.lines, found.path) == (
        *("files-not-seen", Blame.PLATFORM),
        *((why,), ""),
    )


def test_a_dead_worker_of_a_data_loader_is_seen_in_the_traceback() -> None:
    found = failure_of(
        "Traceback (most recent call last):",
        '  File "/lib/torch/utils/data/dataloader.py", line 1291, in _try_get_data',
        "    data = self._data_queue.get(timeout=timeout)",
        '  File "/lib/python3.11/multiprocessing/resource_sharer.py", line 86, in get_connection',
        "    c = Client(address, authkey=process.current_process().authkey)",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    )
    assert found.reason == "data-loader-worker-died"


def test_colours_and_prefixes_of_loggers_do_not_matter() -> None:
    stamped = traceback(OUT_OF_MEMORY, "2026-11-16 10:00:01.977 [177/train (pid 4)] ")
    assert (
        failure_of(*(f"\x1b[31m{line}\x1b[0m" for line in stamped)).reason == "cuda-out-of-memory"
    )


def test_an_empty_table_knows_nothing() -> None:
    lines = traceback(OUT_OF_MEMORY)
    assert classify(Evidence(1, lines=lines), ReasonTable()).reason == "unknown"


def test_long_logs_with_long_lines_are_classified_at_once() -> None:
    junk = ("[x: y-" * 4000, "." * 20000, "a.b" * 9000)
    assert failure_of(*(junk * 100), *traceback(OUT_OF_MEMORY)).reason == "cuda-out-of-memory"


@pytest.mark.parametrize(
    ("code", "reason"), [("raise RuntimeError(said)", "unknown"), ("go()", "semantic-error")]
)
def test_what_the_program_itself_raises_is_in_its_own_words(code: str, reason: str) -> None:
    *before, _, exception = traceback("RuntimeError: expected 3 votes but got 2")
    assert failure_of(*before, f"    {code}", exception).reason == reason


def test_a_gpu_reports_late_what_a_line_before_has_named() -> None:
    late = traceback("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling")
    kernel = "Indexing.cu:12: f: block: [3,0,0], thread: [4,0,0] Assertion `i < n` failed."
    assert failure_of(*late).reason == "cuda-library-error"
    assert failure_of(kernel, *late).reason == "device-side-assert"


@pytest.mark.parametrize(
    "line",
    [
        "memory.events: low 0 oom 0 oom_kill 0",
        "hint: CUDA out of memory. Tried to allocate 2.00 GiB means a batch that is too large",
        "CUDA out of memory. Tried to allocate 2.00 GiB, falling back to the CPU",
    ],
)
def test_what_did_not_happen_or_was_got_over_is_no_reason(line: str) -> None:
    assert failure_of("starting", line, "writing the report", code=3).reason == "unknown"


def test_a_warned_traceback_counts_only_where_none_follows() -> None:
    warned = ("WARNING:root:no notes", *traceback("PermissionError: [Errno 13] Permission denied"))
    own = traceback("train.Tired: 3 of 4")
    assert failure_of(*warned).reason == "permission-error"
    assert failure_of(*warned, "going to the board", *own).reason == "unknown"


def test_a_traceback_within_a_line_of_json_is_read() -> None:
    text = r"\n".join(traceback("FileNotFoundError: [Errno 2] No such file or directory: '/a/b'"))
    found = failure_of('{"event": "failed", "exception": "' + text.replace('"', r"\"") + '"}')
    assert (found.reason, found.path) == ("missing-file", "/a/b")


def test_a_command_that_failed_is_shown_after_its_own_words() -> None:
    told = "subprocess.CalledProcessError: Command '['false']' returned non-zero exit status 1."
    own = ('File "train.py", line 9, in <module>', "go()", told)
    assert failure_of(*traceback(told)) == Failure(UNKNOWN_REASON, rank=0, lines=own, exit_code=1)
    assert failure_of("stage two", *traceback(told)).lines == ("stage two", *own)
    known = failure_of("cat: /data/x: No such file or directory", *traceback(told))
    assert (known.reason, known.path) == ("missing-file", "/data/x")


LOST_STDERR = (
    "object address  : 0x7f8c1c0d5a20",
    "object type name: ConnectionResetError",
    "object repr     : ConnectionResetError(104, 'Connection reset by peer')",
    "lost sys.stderr",
)


def test_what_python_says_of_an_exception_that_it_could_not_raise_is_no_cause() -> None:
    died = "RuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly"
    assert failure_of(*traceback(died), *LOST_STDERR, ranks=1).reason == "data-loader-worker-died"
    assert failure_of(*LOST_STDERR, code=137, signal="SIGKILL").reason == "killed-by-signal"


def test_the_thread_of_a_data_loader_that_ends_after_it_is_no_cause() -> None:
    died = traceback("RuntimeError: DataLoader worker (pid(s) 123) exited unexpectedly")
    place = '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395, in _recv'
    reset = traceback("ConnectionResetError: [Errno 104] Connection reset by peer")
    thread = (
        "Exception in thread Thread-1 (_pin_memory_loop):",
        *(*reset[:-1], place, "    chunk = read(handle, remaining)", reset[-1]),
    )
    for ranks in (1, 2):
        assert failure_of(*died, *thread, ranks=ranks).reason == "data-loader-worker-died"
        assert failure_of(*thread, *died, ranks=ranks).reason == "data-loader-worker-died"
    other = ("Exception in thread Thread-2 (log):", *traceback("KeyError: 'a'"))
    assert failure_of(*traceback(SIZES), *other).reason == "shape-mismatch"
    assert failure_of(*other).reason == "semantic-error"


def test_no_other_rank_is_blamed_where_there_is_none() -> None:
    reset = traceback("ConnectionResetError: [Errno 104] Connection reset by peer")
    assert failure_of(*reset, ranks=1).reason == "network-error"
    worker = (
        *(
            *reset[:-1],
            '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395, in _recv',
        ),
        *("    chunk = read(handle, remaining)", reset[-1]),
    )
    assert failure_of(*worker, ranks=1).reason == "data-loader-worker-died"
    place = '  File "/usr/lib/python3.11/socket.py", line 706, in readinto'
    read = (*reset[:-1], place, "    return self._sock.recv_into(b)", reset[-1])
    assert failure_of(*read, ranks=1).reason == "network-error"
    assert failure_of(*reset, ranks=2).reason == "peer-connection-lost"
    assert failure_of(*reset, ranks=None).reason == "peer-connection-lost"
    assert failure_of(*traceback(PEER_GONE, "[rank1]: "), ranks=1).reason == "peer-connection-lost"


def test_a_signal_has_no_lines_that_show_it_unless_a_launcher_tells_it() -> None:
    assert failure_of("hello", code=139, signal="SIGSEGV").lines == ()
    told = "Signal 9 (SIGKILL) received by PID 4242"
    assert failure_of("hello", told, "bye").lines == (told,)


def test_the_name_of_a_model_is_not_a_path() -> None:
    missing = "OSError: meta-llama/Foo is not a local folder and is not a valid model identifier"
    assert (failure_of(*traceback(missing)).reason, failure_of(*traceback(missing)).path) == (
        "missing-file",
        "",
    )


@pytest.mark.parametrize(
    "said",
    [
        "urllib.error.HTTPError: HTTP Error 404: Not Found",
        "urllib.error.HTTPError: HTTP Error 410: Gone",
        "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: http://a/w.bin",
        "huggingface_hub.errors.EntryNotFoundError: 404 Client Error. Entry Not Found for url: x",
        "httpx.HTTPStatusError: Client error '404 Not Found' for url 'http://a'",
    ],
)
def test_what_a_server_does_not_have_it_will_not_have_at_the_next_try(said: str) -> None:
    found = failure_of(*traceback(said), ranks=1)
    assert (found.reason, found.blame) == ("wrong-address", Blame.USER)
    assert built_in_table().of(found.reason).retry is RetryRule.NEVER
    busy = failure_of(*traceback(said.replace("404", "503").replace("410", "503")), ranks=1)
    assert busy.reason in ("network-error", "unknown")


@pytest.mark.parametrize("why", ["certificate has expired", "self-signed certificate", "EOF"])
def test_a_certificate_that_is_not_accepted_is_not_accepted_later(why: str) -> None:
    cause = f"[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {why} (_ssl.c:1006)"
    chain = (
        *traceback(f"ssl.SSLCertVerificationError: {cause}"),
        "During handling of the above exception, another exception occurred:",
        *traceback(f"urllib.error.URLError: <urlopen error {cause}>"),
    )
    expected = "network-error" if why == "EOF" else "certificate-error"
    assert failure_of(*chain).reason == expected


def raised_in(place: str, code: str, exception: str) -> tuple[str, ...]:
    *before, last = traceback(exception)
    return (*before, f'  File "/lib/python3.11/site-packages/{place}', f"    {code}", last)


def test_checkpoints_that_pytorch_cannot_write_or_read() -> None:
    full = raised_in(
        'torch/serialization.py", line 834, in __exit__',
        "self.file_like.write_end_of_file()",
        "RuntimeError: basic_ios::clear: iostream error",
    )
    assert failure_of("step 100", *full).reason == "disk-full"
    garbage = raised_in(
        'torch/_weights_only_unpickler.py", line 544, in load',
        "self.append(self.memo[idx])",
        "KeyError: 101",
    )
    assert failure_of(*garbage).reason == "checkpoint-error"
    assert failure_of(*traceback("KeyError: 101")).reason == "semantic-error"


def test_of_a_pool_the_line_of_the_worker_is_shown() -> None:
    own = ('  File "train.py", line 2, in score', "    return 1 / (x - 3)")
    error = "ZeroDivisionError: division by zero"
    found = failure_of(
        "multiprocessing.pool.RemoteTraceback: ",
        '"""',
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.11/multiprocessing/pool.py", line 48, in mapstar',
        "    return list(map(*args))",
        *own,
        error,
        '"""',
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *traceback(error),
    )
    assert found.reason == "semantic-error"
    assert found.lines == (own[0].strip(), own[1].strip(), error)


def test_a_folder_that_dash_cannot_enter_is_missing() -> None:
    found = failure_of("sh: 1: cd: can't cd to /nowhere", code=2)
    assert (found.reason, found.path) == ("missing-file", "/nowhere")


def test_a_rank_that_ended_while_others_connected_is_no_time_out() -> None:
    gone = "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:553] {}"
    closed = traceback(gone.format("Connection closed by peer [127.0.0.1]:43659."))
    assert failure_of(*closed, ranks=2).reason == "peer-connection-lost"
    late = traceback(gone.format("no address of rank 1"))
    assert failure_of(*late, ranks=2).reason == "rendezvous-timeout"
