# reason: semantic-error
"""The model has no such part."""


class Model:
    pass


Model().forwrad(1)
