# reason: disk-full
with open("/dev/full", "w") as out:
    for step in range(100000):
        out.write(f"{step},0.5\n")
