# reason: assertion-error
def shard(sizes, world):
    assert sum(sizes) % world == 0, f"cannot shard {sum(sizes)} elements over {world} ranks evenly"


shard([3, 4], 2)
