"""A file's format is recognised by what is in it."""

from __future__ import annotations

import pytest

from trainmaster.model.trace import TraceError
from trainmaster.traces import formats

FIRST_LINES = {
    "native": "job_id,submit_s,gpus,duration_s,user",
    "philly": '[{"status": "Pass", "vc": "a"',
    "philly-82k": "timestamp,duration,num_gpus,gpu_time,cluster",
    "helios": "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,"
    "end_time,duration,queue",
    "alibaba-2020": "j1,tensorflow,2.0,Terminated,100.0,400.0,600.0,29.3,50.0,MISC",
    "alibaba-2023": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time",
    "tiresias": "job_id,num_gpu,submit_time,iterations,model_name,duration,interval",
    "gavel": "A3C\tcmd\t-n\t1\t100\t0.0\t1",
}


@pytest.mark.parametrize(("name", "line"), FIRST_LINES.items(), ids=FIRST_LINES.keys())
def test_each_format_is_recognised_by_its_first_line(name, line, write):
    assert formats.recognise(write(f"\n{line}\n")) == name


def test_every_format_has_a_first_line_here():
    assert FIRST_LINES.keys() == formats.FORMATS.keys()


def test_folders_are_recognised_by_their_files(write, tmp_path):
    with pytest.raises(TraceError, match=r"is a folder without pai_task_table.csv or cluster_job"):
        formats.recognise(tmp_path)
    write("[]", "cluster_job_log")
    assert formats.recognise(tmp_path) == "philly"
    write("", "pai_task_table.csv")
    assert formats.recognise(tmp_path) == "alibaba-2020"


def test_a_native_file_without_a_column_is_still_native_and_says_what_is_missing(write):
    path = write("job_id,submit_s,gpus\na,0,1\n")
    with pytest.raises(TraceError, match="line 1: the header has no column duration_s"):
        formats.load(path)


def test_an_unknown_file_gets_the_list_of_formats(write):
    path = write("a,b,c\n1,2,3\n")
    with pytest.raises(TraceError) as caught:
        formats.load(path)
    assert str(caught.value) == (
        f"{path} is in no trace format that Trainmaster knows: give a CSV of your own the columns"
        " job_id, submit_s, gpus, duration_s, or name one of native, philly, philly-82k, helios,"
        " alibaba-2020, alibaba-2023, tiresias, gavel with --format."
    )


def test_an_empty_file_is_empty_whatever_its_format(write):
    with pytest.raises(TraceError, match="is empty"):
        formats.load(write(""))
    for name in formats.FORMATS.keys() - {"philly"}:
        with pytest.raises(TraceError, match="is empty"):
            formats.load(write(""), name)


def test_an_unknown_format_is_offered_its_neighbour(write):
    with pytest.raises(TraceError, match="no trace format 'tiresia'; did you mean tiresias"):
        formats.load(write("x"), "tiresia")
