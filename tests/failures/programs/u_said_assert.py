# reason: assertion-error
world, accumulation = 3, 8
assert accumulation % world == 0, f"accumulation {accumulation} does not divide among {world} ranks"
