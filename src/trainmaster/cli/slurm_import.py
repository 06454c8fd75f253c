"""`trainmaster import`: Slurm scripts become job files, and what is not understood is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from trainmaster.cli.support.console import write, write_error, write_json
from trainmaster.cli.support.files import check_directory, write_text
from trainmaster.cli.support.options import AsJson, argument, option
from trainmaster.config.job_file import job_file_of
from trainmaster.config.slurm.job import Imported, Wishes, imported
from trainmaster.config.slurm.job_text import job_text
from trainmaster.config.slurm.script import Remark, is_batch_script, read_script
from trainmaster.config.validation import ConfigError
from trainmaster.errors import BadInput
from trainmaster.input_files import STDIO, read_text
from trainmaster.text.control_characters import visible_line

SCRIPTS = "Batch scripts with #SBATCH lines; - reads standard input."
OUT = "Folder for the job files, or - for standard output. Default: this folder."
QUEUE_MAP = "Queues for partitions, accounts or QOS, such as gpu=default,debug=short."
GPU_MAP = "Names that GPU types have here, such as a100=H100; a100= is any type."
OUTPUT_FILES = "Also write the output to the files that --output and --error name."
ALL_VARIABLES = (
    "Set every SLURM_ variable that is known here, for programs that read them themselves."
)


@dataclass(frozen=True, slots=True)
class Converted:
    """A script, and its job file."""

    script: str
    file: str
    found: Imported
    text: str


def import_scripts(
    scripts: Annotated[list[str], argument("SCRIPT", SCRIPTS)],
    out: Annotated[str | None, option("--out DIR", OUT)] = None,
    queue_map: Annotated[str | None, option("--queue-map OLD=NEW,…", QUEUE_MAP)] = None,
    gpu_map: Annotated[str | None, option("--gpu-map OLD=NEW,…", GPU_MAP)] = None,
    output_files: Annotated[bool, option("--output-files", OUTPUT_FILES)] = False,
    all_variables: Annotated[bool, option("--all-variables", ALL_VARIABLES)] = False,
    force: Annotated[bool, option("-f --force", "Replace job files that are there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make job files of Slurm batch scripts: `#SBATCH` lines, `srun` and SLURM_ variables.

    What is not understood is listed with its line, and stands at the top of the job file. Nothing is
    submitted.

    Examples:
        trainmaster import train.sbatch
        trainmaster import *.sbatch --out jobs --queue-map gpu=default,debug=short
        trainmaster import train.sbatch --out - | trainmaster submit - --dry-run
    """
    wishes = Wishes(
        _map(queue_map, "--queue-map"), _map(gpu_map, "--gpu-map"), output_files, all_variables
    )
    to_stdout = out == STDIO
    folder = Path(out or ".")
    if not to_stdout:
        check_directory(folder, "--out")
    converted = [_convert(script, wishes) for script in scripts]
    if not to_stdout:
        _save(converted, folder, force=force)
    if as_json:
        write_json(
            {"scripts": [_answer(each, folder, has_file=not to_stdout) for each in converted]}
        )
        return
    if to_stdout:
        write("---\n".join(each.text for each in converted))
    report = "".join(_report(each, None if to_stdout else folder) for each in converted)
    (write_error if to_stdout else write)(report)


def _map(text: str | None, name: str) -> Mapping[str, str]:
    found = {}
    for piece in filter(None, (text or "").split(",")):
        old, equals, new = piece.partition("=")
        if not equals or not old.strip():
            raise BadInput(f"{name} {piece!r} must be OLD=NEW.")
        found[old.strip()] = new.strip()
    return found


def _convert(script: str, wishes: Wishes) -> Converted:
    name = "standard input" if script == STDIO else script
    text = read_text(Path(script), "the script", takes_stdin=True)
    if not is_batch_script(text):
        raise BadInput(
            f"{name} has no #SBATCH line: `trainmaster run -- {script}` runs a program as it is."
        )
    found = imported(read_script(text), wishes)
    if not found.fields.get("command"):
        raise BadInput(
            f"{name} has no command below its #SBATCH lines, so there is nothing to run."
        )
    try:
        job_file_of(dict(found.fields))
    except ConfigError as bad:
        raise BadInput(f"{name}: the job file would not be valid: {bad}") from None
    file = "job.yaml" if script == STDIO else f"{Path(script).stem}.yaml"
    return Converted(name, file, found, job_text(found.fields, _comments(name, found)))


def _comments(name: str, found: Imported) -> list[str]:
    """What stands at the top of the file."""
    first = f"Imported from {Path(name).name} by `trainmaster import`."
    lost = [f"  {_line(each)}" for each in found.not_understood]
    comment = [f"Comment: {found.comment}"] if found.comment else []
    lines = [first, *comment, *(["Not understood:", *lost] if lost else [])]
    return [visible_line(line) for line in lines]


def _save(converted: Sequence[Converted], folder: Path, *, force: bool) -> None:
    """All files or none."""
    names = [each.file for each in converted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(
            f"two scripts would become {folder / twice}: import them into folders of their own."
        )
    present = next((name for name in names if (folder / name).exists()), None)
    if present is not None and not force:
        raise BadInput(
            f"{folder / present} is there already: add --force to replace it, or choose --out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for each in converted:
        write_text(folder / each.file, lambda file, text=each.text: file.write(text))  # type: ignore[misc]


def _report(each: Converted, folder: Path | None) -> str:
    lines = [each.script if folder is None else f"{each.script} -> {folder / each.file}"]
    for title, remarks in (
        ("not understood", each.found.not_understood),
        ("said in another way", each.found.changed),
    ):
        if remarks:
            lines += [f"  {title}:", *(f"    {_line(remark)}" for remark in remarks)]
    return "".join(f"{visible_line(line)}\n" for line in lines)


def _line(remark: Remark) -> str:
    place = f"line {remark.line}: " if remark.line else ""
    return f"{place}{remark.text}: {remark.why}" if remark.text else f"{place}{remark.why}"


def _answer(each: Converted, folder: Path, *, has_file: bool) -> dict[str, object]:
    def rows(remarks: Sequence[Remark]) -> list[dict[str, object]]:
        return [{"line": it.line or None, "text": it.text, "why": it.why} for it in remarks]

    return {
        "script": each.script,
        "file": str(folder / each.file) if has_file else None,
        "job": dict(each.found.fields),
        "not_understood": rows(each.found.not_understood),
        "changed": rows(each.found.changed),
    }
