# reason: unknown
import warnings

warnings.simplefilter("error")
warnings.warn("the old schedule is deprecated", stacklevel=1)
