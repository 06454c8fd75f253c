# reason: network-error
import httpx

httpx.post("http://127.0.0.1:9/api/runs", json={"name": "a"})
