"""`trainmaster story`: what happened to a job, from its submission on."""

from __future__ import annotations

from trainmaster.cli.live_options import AsJson, Data, JobName, Url
from trainmaster.cli.wording import examples

EPILOG = examples("trainmaster story 12", "trainmaster story 12 --json")


def story(job: JobName, as_json: AsJson = False, url: Url = None, data: Data = None) -> None:
    """Tell what happened to a job, a line for each thing, oldest first."""
    from rich.markup import escape

    from trainmaster.cli import live_words as words
    from trainmaster.cli.client import connect, of
    from trainmaster.cli.wording import screen

    with connect(url, data) as client:
        said = client.get(of(job, "story"))
    if as_json:
        words.write_json(said)
        return
    made = words.table("when", "after", "what happened")
    made.columns[-1].no_wrap = False
    made.columns[-1].overflow = "fold"
    first = said["story"][0]["at_s"] if said["story"] else 0
    for each in said["story"]:
        made.add_row(
            words.at(each["at_s"]),
            words.length(each["at_s"] - first),
            escape(each["sentence"]),
        )
    screen().print(made)
