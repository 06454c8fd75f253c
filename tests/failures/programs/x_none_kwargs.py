# reason: unknown
class PipelineError(RuntimeError):
    pass


def stage(name):
    raise PipelineError(f"stage {name!r} returned no artefacts")


try:
    stage("tokenise")
except PipelineError as error:
    raise PipelineError("pipeline 7 failed") from error
