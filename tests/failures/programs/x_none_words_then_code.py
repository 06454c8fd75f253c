# reason: unknown
import sys

print("checking CUDA out of memory handling: passed")
print("checking NCCL timeout handling: passed")
print("checking permission denied handling: passed")
print("checking segmentation fault handling: passed")
sys.exit(11)
