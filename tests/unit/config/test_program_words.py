"""The program of a command is told from its arguments, also behind a launcher and in a text for the shell."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.config.command_line import SHELL, Command
from trainmaster.config.program_words import split_program


def program(command: Command) -> str:
    return " ".join(split_program(command)[0])


@pytest.mark.parametrize(
    ("command", "wanted", "arguments"),
    [
        ("python train.py --batch 8", "python train.py", "--batch 8"),
        ("python -u -W ignore train.py --lr 1", "python train.py", "-u -W ignore --lr 1"),
        ("python -m pkg.train --lr 1", "python -m pkg.train", "--lr 1"),
        ("./train --lr=0.1 a,b", "./train", "--lr=0.1 a,b"),
        ("bash -e train.sh 3", "bash train.sh", "-e 3"),
        # launchers
        ("torchrun --nproc_per_node 2 train.py --lr 1", "torchrun train.py", None),
        ("torchrun --nproc-per-node=2 --standalone train.py --lr 1", "torchrun train.py", None),
        ("torchrun --standalone ./fit --lr 1", "torchrun ./fit", "--standalone --lr 1"),
        ("torchrun --nnodes 1 -m pkg.train eval.py", "torchrun pkg.train", None),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py", "torchrun train.py", None),
        ("python3 -u -m torch.distributed.launch --use_env train.py", "torchrun train.py", None),
        ("accelerate launch train.py --lr 1", "accelerate train.py", "launch --lr 1"),
        ("accelerate launch --multi_gpu --num_processes 2 -m pkg.fit", "accelerate pkg.fit", None),
        ("accelerate launch --new_flag train.py eval.py", "accelerate train.py", None),
        ("accelerate-launch --config_file a.yaml train.py", "accelerate train.py", None),
        ("accelerate test", "accelerate test", ""),
        ("deepspeed --num_gpus 2 --hostfile h train.py --deepspeed", "deepspeed train.py", None),
        ("deepspeed --module --include localhost:0 pkg.fit", "deepspeed pkg.fit", None),
        ("torchrun --standalone", "torchrun --standalone", ""),
        ("mpirun -np 2 -x A python train.py", "mpirun python train.py", "-np 2 -x A"),
        ("mpirun -np 2 solver", "mpirun -np 2 solver", ""),
        ("mpirun -np 2 ./solver 1", "mpirun ./solver", "-np 2 1"),
        ("mpirun --map-by=slot ./solver 1", "mpirun ./solver", "--map-by=slot 1"),
        ("nice -n 5 ./solver 1", "./solver", "nice -n 5 1"),
        ("nice -n 5 solver 1", "-n 5 solver 1", "nice"),
        ("timeout 3h torchrun --nnodes 1 train.py", "timeout torchrun train.py", "3h --nnodes 1"),
        ("nice -n 5 python train.py", "python train.py", "nice -n 5"),
        ("sudo -u x python train.py 1", "sudo python train.py", "-u x 1"),
        ("apptainer exec ./a.sif python train.py 1", "apptainer python train.py", "exec ./a.sif 1"),
        ("pixi run -e a torchrun train.py 1", "pixi torchrun train.py", "run -e a 1"),
        ("./within a python train.py 1", "./within python train.py", "a 1"),
        ("./train --strategy deepspeed --lr 1", "./train", "--strategy deepspeed --lr 1"),
        ("uv run python train.py", "python train.py", "uv run"),
        ("conda run -n env python train.py 1", "python train.py", "conda run -n env 1"),
        # texts with quotes, variables and more than one command
        ("python 'a b.py' --name 'x y'", "python a b.py", "--name x y"),
        ("LR=1 exec python train.py > log", "python train.py", "LR=1 exec > log"),
        ("python train.py --seed $SEED", "python train.py", "--seed $SEED"),
        ("bash -c 'python train.py --lr 1'", "python train.py", "--lr 1"),
        ("""bash -lc "torchrun train.py --note 'a b'" """, "torchrun train.py", "--note a b"),
        ("cd a && python train.py 1", "cd a python train.py", "&& 1"),
        ("export A=1; echo go; python train.py", "python train.py", None),
        ("python prepare.py x\npython train.py y", "python prepare.py python train.py", "x y"),
        ("for lr in 1 2; do python train.py --lr $lr; done", "python train.py", None),
        ("python -c 'import x\nx.fit(1)' 2", "python -c import x\nx.fit(1)", "2"),
        ("python train.py --color '#fff' # the best\n", "python train.py", None),
        ("sleep 60", "sleep", "60"),
        ("", "", ""),
    ],
)
def test_the_program_is_what_is_left_without_its_arguments(
    command: str, wanted: str, arguments: str | None
) -> None:
    found = split_program((*SHELL, command))
    assert " ".join(found[0]) == wanted
    if arguments is not None:
        assert " ".join(found[1]) == arguments


@pytest.mark.parametrize(
    "command",
    [
        ("python", "train.py", "--lr", "1"),
        ("torchrun", "--nproc_per_node", "2", "train.py", "--name", "a b"),
        ("bash", "-c", "accelerate launch train.py --name 'a b'"),
    ],
)
def test_words_and_a_text_of_them_are_the_same_program(command: tuple[str, ...]) -> None:
    assert split_program(command) == split_program((*SHELL, shlex.join(command)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("torchrun --nproc_per_node 2 a.py", "torchrun --nproc_per_node 2 b.py"),
        ("accelerate launch a.py", "accelerate launch b.py"),
        ("deepspeed --num_gpus 2 a.py", "deepspeed --num_gpus 2 b.py"),
        ("python -m torch.distributed.run a.py", "python -m torch.distributed.run b.py"),
        ("bash -c 'python a.py'", "bash -c 'python b.py'"),
        ("python -c 'a'", "python -c 'b'"),
        ("cd a && python train.py", "cd b && python train.py"),
        ("apptainer exec ./pt.sif python a.py", "apptainer exec ./pt.sif python b.py"),
        ("apptainer exec ./pt.sif ./a", "apptainer exec ./pt.sif ./b"),
        ("apptainer exec ./pt.sif ./a.sh --on bash", "apptainer exec ./pt.sif ./b.sh --on bash"),
        ("docker run -v ./d:/d img python a.py", "docker run -v ./d:/d img python b.py"),
        (
            "docker run -v /o/python:/python i python a.py",
            "docker run -v /o/python:/python i python b.py",
        ),
        ("docker run -v ./d:/d img a", "docker run -v ./d:/d img b"),
        ("docker run --entrypoint python img a.py", "docker run --entrypoint python img b.py"),
        ("docker run --entrypoint=sh img a.sh", "docker run --entrypoint=sh img b.sh"),
        ("mpirun --hostfile ./hosts a", "mpirun --hostfile ./hosts b"),
        ("mpirun --hostfile ./hosts ./a", "mpirun --hostfile ./hosts ./b"),
        ("sudo apptainer exec ./pt.sif ./a", "sudo apptainer exec ./pt.sif ./b"),
        ("sudo -u x python a.py", "sudo -u x python b.py"),
        ("xvfb-run -a python a.py", "xvfb-run -a python b.py"),
        ("./within python a.py", "./within python b.py"),
        ("docker run i python a.py --entrypoint x", "docker run i python b.py --entrypoint x"),
        ("firejail --quiet python -u a.py", "firejail --quiet python -u b.py"),
    ],
)
def test_two_programs_are_never_taken_for_one(one: str, other: str) -> None:
    assert program(one) != program(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("python train.py --tag a#b --lr 1", "python train.py --tag a#b --lr 2"),
        ("python train.py '#' 1", "python train.py '#' 2"),
        ("LR=1 python train.py", "LR=2 python train.py"),
        ("python train.py > a", "python train.py > b"),
        ("torchrun --nproc_per_node 2 a.py", "torchrun --nproc_per_node 4 a.py"),
        ("accelerate launch --mixed_precision bf16 a.py", "accelerate launch a.py"),
        ("python train.py " + "x" * 9000 + "1", "python train.py " + "x" * 9000 + "2"),
        ("bash -c 'python train.py $0' 1", "bash -c 'python train.py $0' 2"),
        ("sleep 60", "sleep 61"),
    ],
)
def test_other_arguments_are_other_arguments(one: str, other: str) -> None:
    assert program(one) == program(other)
    assert split_program(one) != split_program(other)


@given(st.lists(st.text(alphabet="ab ./-c'\"\n#$=py", max_size=8), max_size=6))
def test_no_word_of_a_list_is_lost(words: list[str]) -> None:
    found = split_program(("./run", *words))
    assert sorted((*found[0], *found[1])) == sorted(("./run", *words))


@given(st.text(alphabet="python tra.-c'\"\n#&;|<>()$=mcd", max_size=60))
def test_any_text_is_split(text: str) -> None:
    program, arguments = split_program(text)
    assert isinstance(program, tuple)
    assert isinstance(arguments, tuple)
