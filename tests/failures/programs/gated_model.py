# reason: authentication-error
"""The model is gated, and there is no token."""


class HTTPError(OSError):
    pass


class GatedRepoError(HTTPError):
    pass


try:
    raise HTTPError(
        "401 Client Error: Unauthorized for url: https://huggingface.co/org/model/resolve/main/config.json"
    )
except HTTPError as error:
    raise GatedRepoError(
        "401 Client Error. Access to model org/model is restricted. Please log in."
    ) from error
