"""A path that a program could not write is no input of it."""

from __future__ import annotations

import pytest

from trainmaster.daemon.failure_table import built_in_table
from trainmaster.failures.classification import Evidence, classify

PATH = "/res/metrics.csv"
MISSING = f"FileNotFoundError: [Errno 2] No such file or directory: '{PATH}'"
LIBRARY = "/usr/lib/python3.12/"


def path_of(code: str, *library: str, exception: str = MISSING) -> str:
    """The input that a traceback names, whose program's last line is this, and a library's are those."""
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 2, in <module>',
        f"    {code}",
    ]
    for each in library:
        lines += [f'  File "{LIBRARY}shutil.py", line 2, in f', f"    {each}"]
    evidence = Evidence(1, rank=0, lines=(*lines, exception))
    found = classify(evidence, built_in_table())
    assert found.reason in ("missing-file", "permission-error")
    return found.path


@pytest.mark.parametrize(
    "code",
    [
        'open(sys.argv[2],"w").write("a")',
        "with open(os.path.join(out, f'{name(x)}.csv'), mode='ab') as file:",
        "with open(path, 'x', encoding='utf-8') as file:",
        "log = gzip.open(path, 'wt')",
        "with path.open('w') as file:",
        "Path(out).write_text(json.dumps(found))",
        "os.makedirs(args.out)",
        "path.mkdir()",
        'os.mkdir(f"{out}/run")',
        "frame.to_csv(args.out)",
        "plt.savefig(out)",
        "torch.save(model.state_dict(), path)",
        "np.save(path, weights)",
        "np.savez_compressed(path, a=weights)",
        "model.save_pretrained(args.out)",
        "with h5py.File(path, 'w') as file:",
        "with tarfile.open(path, 'w:gz') as tar:",
        "logging.basicConfig(filename=args.log)",
        "os.replace(half, path)",
        "with tempfile.NamedTemporaryFile(dir=out) as file:",
        "handler = logging.FileHandler(args.log)",
        "fd = os.open(path, os.O_WRONLY | os.O_CREAT)",
    ],
)
def test_what_a_line_writes_is_no_input(code: str) -> None:
    assert path_of(code) == ""
    denied = f"PermissionError: [Errno 13] Permission denied: '{PATH}'"
    assert path_of(code, exception=denied) == ""


@pytest.mark.parametrize(
    "code",
    [
        "open(sys.argv[2])",
        'with open(path, "rb") as file:',
        "with open(path, 'r+') as file:",
        "weights = torch.load(path)",
        "frame = pd.read_csv(args.data)",
        "text = path.read_text()",
        "names = os.listdir(args.data)",
        "for row in csv.reader(open(os.path.join(a, b(c)))):",
        "saved = np.load(path)",
        "x = frames[0].to(device)",
        "go()",
    ],
)
def test_what_a_line_reads_is(code: str) -> None:
    assert path_of(code) == PATH


def test_the_library_knows_which_of_two_paths_it_was() -> None:
    copy = "shutil.copy(args.data, args.out)"
    assert path_of(copy, "copyfile(src, dst)", "with open(src, 'rb') as fsrc:") == PATH
    assert path_of(copy, "copyfile(src, dst)", "with open(dst, 'wb') as fdst:") == ""
    assert path_of("save_all(args)", "with open(template) as file:") == PATH
    zipped = "fileobj = builtins.open(filename, mode or 'rb')"
    assert path_of("with gzip.open(path, 'wb') as file:", zipped) == ""
    assert path_of("with gzip.open(path) as file:", zipped) == PATH
    text = (
        "with self.open(mode='w', encoding=encoding) as f:",
        "return io.open(self, mode, buffering)",
    )
    assert path_of("out.write_text(text)", *text) == ""


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("mkdir: cannot create directory '/a/b': No such file or directory", ""),
        ("tee: /a/b: No such file or directory", ""),
        ("touch: cannot touch '/a/b': No such file or directory", ""),
        ("cp: cannot create regular file '/a/b': No such file or directory", ""),
        ("cat: /a/b: No such file or directory", "/a/b"),
    ],
)
def test_tools_say_what_they_could_not_make(line: str, path: str) -> None:
    found = classify(Evidence(1, rank=0, lines=(line,)), built_in_table())
    assert (found.reason, found.path) == ("missing-file", path)
