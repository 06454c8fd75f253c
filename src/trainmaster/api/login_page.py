"""What a browser sees without a session: a field for a token, and how to get one."""

from __future__ import annotations

from html import escape
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from trainmaster.api.icon import ICON

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without any, the form would come from nowhere
    "Cache-Control": "no-store",
}
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="trainmaster"'}
NOT_LOGGED_IN = "You are not logged in here, or your session has ended."
NOWHERE = ("/login", "/logout", "/api/", "/_nicegui")
"""Where nobody wants to go after logging in."""
LONGEST = 2000
FAVICON = f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}">'
SHEET = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Trainmaster</title>{more}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 12vh auto 2rem; max-width: 26rem; padding: 0 1.2rem }}
h1 {{ font-size: 1.4rem }}
input, button {{ font: inherit; width: 100%; box-sizing: border-box; padding: .5rem .7rem; margin: .3rem 0 }}
button {{ background: #0072b2; color: #fff; border: 0; border-radius: 4px; cursor: pointer }}
small {{ opacity: .8 }}
</style>
</head><body>
<h1>Trainmaster</h1>
{body}
</body></html>
"""
FORM = """<p>{said}</p>
<form method="post" action="/login">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input name="then" type="hidden" value="{then}">
<button>Log in</button>
</form>
<p><small>On the machine of the manager, <code>trainmaster token new</code> makes a token, and
<code>trainmaster token link</code> prints a link that opens this page without one: it works once, for 10
minutes.</small></p>
"""
AGAIN = '<meta http-equiv="refresh" content="0">'


def login_page(
    scope: Scope, said: str = NOT_LOGGED_IN, then: str = "", status: int = 401
) -> Response:
    """Where somebody may log in, and then goes on to where they were going."""
    headers = Headers(scope=scope)
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and scope["method"] == "GET":
        # By a link of another site a browser comes without its cookie, and by its own reload with it.
        return sheet("<p>One moment.</p>", more=AGAIN, status=status)
    if not then:
        query = scope["query_string"].decode("ascii", "replace")
        then = after_login(scope["path"] + (f"?{query}" if query else ""))
    return sheet(FORM.format(said=escape(said), then=escape(then)), status=status)


def sheet(body: str, *, status: int, more: str = "", again_s: int | None = None) -> Response:
    """A page of the manager itself, without scripts; it loads itself again where that may help."""
    if again_s is not None:
        more += f'<meta http-equiv="refresh" content="{again_s}">'
    later = {} if again_s is None else {"Retry-After": str(again_s)}
    challenge = CHALLENGE if status == 401 else {}
    page = SHEET.format(body=body, more=FAVICON + more)
    return HTMLResponse(page, status, {**PAGE_HEADERS, **challenge, **later})


def after_login(path: str) -> str:
    """A page of ours: this one, where it is one."""
    parts = urlsplit(path)
    is_ours = path.startswith("/") and not path.startswith(("//", *NOWHERE))
    is_plain = path.isprintable() and "\\" not in path and len(path) <= LONGEST
    return path if is_ours and is_plain and not parts.scheme and not parts.netloc else "/"
