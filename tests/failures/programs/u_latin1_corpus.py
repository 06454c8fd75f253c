# reason: incorrect-input
import pathlib
import tempfile

corpus = pathlib.Path(tempfile.mkdtemp()) / "corpus.txt"
corpus.write_bytes("caf\u00e9 cr\u00e8me".encode("latin-1"))
print(corpus.read_text(encoding="utf-8"))
