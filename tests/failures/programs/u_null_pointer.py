# reason: core-dump
import ctypes
import faulthandler

faulthandler.enable()
print("calling the extension", flush=True)
ctypes.string_at(0)
