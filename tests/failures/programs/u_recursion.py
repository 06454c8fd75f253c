# reason: semantic-error
def depth(tree):
    return 1 + depth(tree["left"])


tree = {}
tree["left"] = tree
depth(tree)
