# reason: unknown
def parse(mode):
    raise ValueError("teacher and student disagree on 12 of 40 prompts")


parse("x")
