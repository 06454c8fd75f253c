# reason: unknown
import sys

print("memory 97% used, swap full")
print("gradient overflow counter reset")
print("file index built, some paths do not exist yet")
print("connection pool: 2 connections timed out, 14 alive")
sys.exit(17)
