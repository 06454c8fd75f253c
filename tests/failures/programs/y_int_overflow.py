# reason: semantic-error
import math

print(math.exp(100000))
