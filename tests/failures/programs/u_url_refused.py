# reason: network-error
import urllib.request

print("fetching weights")
urllib.request.urlopen("http://127.0.0.1:9/resnet50.bin", timeout=3)
