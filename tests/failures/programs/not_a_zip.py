# reason: incorrect-input
"""The archive is an error page."""

import io
import zipfile

zipfile.ZipFile(io.BytesIO(b"<html>404</html>"))
